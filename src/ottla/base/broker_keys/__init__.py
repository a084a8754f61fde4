"""All keys of `server.properties`, one file per family; BrokerSettings combines them."""
