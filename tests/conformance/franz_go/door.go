package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// secured adds what a client needs to get in over TLS with a login, if the test says so.
func secured(options ...kgo.Opt) []kgo.Opt {
	file := os.Getenv("OTTLA_TEST_CA")
	if file == "" {
		return options
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	login := scram.Auth{User: os.Getenv("OTTLA_TEST_USER"), Pass: os.Getenv("OTTLA_TEST_PASSWORD")}
	return append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}), kgo.SASL(login.AsSha512Mechanism()))
}
