module ottla/conformance

go 1.24

require (
	github.com/twmb/franz-go v1.20.0
	github.com/twmb/franz-go/pkg/kadm v1.17.0
)
