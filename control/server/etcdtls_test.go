package server

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEtcdTLS(t *testing.T) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	dir := t.TempDir()
	ca, empty := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "empty.pem")
	for name, data := range map[string][]byte{
		ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), empty: nil,
	} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	endpoints := []string{"https://192.0.2.1:2379"}
	if config, err := (EtcdTLS{}).config(nil); config != nil || err != nil {
		t.Errorf("without files: %v, %v", config, err)
	}
	if config, err := (EtcdTLS{CA: ca}).config(endpoints); err != nil || config.RootCAs == nil {
		t.Errorf("authorities: %v", err)
	}
	for _, c := range []struct {
		files     EtcdTLS
		endpoints []string
		fails     string
	}{
		{EtcdTLS{CA: ca}, nil, "--etcd"},
		{EtcdTLS{CA: ca}, []string{"http://192.0.2.1:2379"}, "https://"},
		{EtcdTLS{CA: empty}, endpoints, "no certificate in"},
		{EtcdTLS{Cert: ca}, endpoints, "--etcd-key"},
		{EtcdTLS{Cert: ca, Key: ca}, endpoints, "read certificate for etcd"},
		{EtcdTLS{CA: dir + "/none"}, endpoints, "no such file"},
	} {
		if _, err := c.files.config(c.endpoints); err == nil || !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%+v: got %v, want %s", c.files, err, c.fails)
		}
	}
}
