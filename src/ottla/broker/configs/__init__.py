"""Configuration of a broker: dynamic settings, AlterConfigs, DescribeConfigs."""
