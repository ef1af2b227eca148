package store

import (
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// startExternal runs an etcd with default limits behind a unix socket and gives its endpoint.
func startExternal(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	socket := url.URL{Scheme: "unix", Path: filepath.Join(dir, "etcd.sock")}
	nowhere := url.URL{Scheme: "http", Host: "localhost:0"}
	c := embed.NewConfig()
	c.Name, c.Dir = "external", filepath.Join(dir, "data")
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, []url.URL{nowhere}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{socket}, []url.URL{nowhere}
	c.InitialCluster = "external=" + nowhere.String()
	c.TickMs, c.ElectionMs = 20, 100
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("etcd was not ready within 30 s")
	}
	return socket.String()
}
