package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// EtcdTLS names the files, in PEM, that authenticate an etcd cluster and this server to each other.
type EtcdTLS struct {
	CA   string // authorities that may vouch for the cluster; empty: those of the machine
	Cert string // of this server, with Key
	Key  string
}

// config is nil where TLS is not configured.
func (e EtcdTLS) config(endpoints []string) (*tls.Config, error) {
	if e == (EtcdTLS{}) {
		return nil, nil
	}
	if len(endpoints) == 0 {
		return nil, errors.New("certificates for etcd, but no etcd: name its endpoints " +
			"(--etcd https://HOST:2379)")
	}
	for _, endpoint := range endpoints {
		if strings.HasPrefix(endpoint, "http://") {
			return nil, fmt.Errorf("use certificates for etcd at %s: it is spoken to "+
				"without TLS; write https://", endpoint)
		}
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CA != "" {
		data, err := os.ReadFile(e.CA)
		if err != nil {
			return nil, fmt.Errorf("read authorities of etcd: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("read authorities of etcd: no certificate in %s", e.CA)
		}
	}
	if (e.Cert == "") != (e.Key == "") {
		return nil, errors.New("a certificate for etcd and its key go together: --etcd-cert and --etcd-key")
	}
	if e.Cert != "" {
		own, err := tls.LoadX509KeyPair(e.Cert, e.Key)
		if err != nil {
			return nil, fmt.Errorf("read certificate for etcd: %w", err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}
