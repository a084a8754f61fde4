"""Lines and tables that the commands of ottla and Kafka's scripts print in common."""
