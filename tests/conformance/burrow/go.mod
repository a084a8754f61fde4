module ottla/conformance

go 1.24

require github.com/IBM/sarama v1.46.3
