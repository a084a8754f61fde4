module ottla/registry

go 1.24

require github.com/twmb/franz-go/pkg/sr v1.5.0
