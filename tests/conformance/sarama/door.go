package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// login is SCRAM as sarama asks for it.
type login struct {
	*scram.ClientConversation
}

func (l *login) Begin(user, password, identity string) error {
	client, err := scram.SHA512.NewClient(user, password, identity)
	if err == nil {
		l.ClientConversation = client.NewConversation()
	}
	return err
}

// secure adds what a client needs to get in over TLS with a login, if the test says so.
func secure(config *sarama.Config) {
	file := os.Getenv("OTTLA_TEST_CA")
	if file == "" {
		return
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: trusted}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
	config.Net.SASL.User = os.Getenv("OTTLA_TEST_USER")
	config.Net.SASL.Password = os.Getenv("OTTLA_TEST_PASSWORD")
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &login{} }
}
