package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/rest"
)

// renewInTime renews this machine's certificate after two thirds of its time.
func (c *cluster) renewInTime(ctx context.Context, now time.Time) error {
	id := c.identity()
	if now.Before(c.renewal(id.Certificate)) {
		return nil
	}
	request, err := pki.Request(id.Key)
	if err != nil {
		return err
	}
	m := c.current()
	var cert []byte
	if m.Role == pki.Server {
		own := pki.Member{Name: m.Name, Role: m.Role, Hosts: []string{c.ownAddress().Addr().String()}}
		cert, err = c.sign(ctx, own, request)
	} else {
		var answer api.RenewAnswer
		asked := api.RenewRequest{Request: request, API: m.Advertise}
		err = call(ctx, c.AnyServer(), "https://server/v1/renew", asked, &answer)
		cert = []byte(answer.Certificate)
	}
	if err != nil {
		return err
	}
	if err := c.dir.renew(cert); err != nil {
		return err
	}
	c.closeIdle() // new connections show the new certificate
	c.log.Info("renewed this machine's certificate", "valid until", c.identity().Certificate.NotAfter)
	return nil
}

// call posts a request to a member and reads its answer.
func call(ctx context.Context, by http.RoundTripper, url string, in, out any) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := by.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return rest.ReadAnswer(resp, out)
}

func newTransport() *http.Transport {
	return &http.Transport{
		DialContext: (&net.Dialer{
			Timeout: peerDialTimeout,
			KeepAliveConfig: net.KeepAliveConfig{
				Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3,
			},
		}).DialContext,
		TLSHandshakeTimeout: peerDialTimeout,
		IdleConnTimeout:     peerIdle,
		DisableCompression:  true,
	}
}

// firstOf sends a request to the first server that can be reached.
type firstOf struct {
	servers func() []string
	by      http.RoundTripper
}

func (f firstOf) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(io.LimitReader(r.Body, maxServerRequest))
		r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	servers := f.servers()
	if len(servers) == 0 {
		return nil, errors.New("no server of the cluster is known")
	}
	var errs []error
	for _, server := range servers {
		try := r.Clone(r.Context())
		try.URL.Host, try.Host = server, server
		try.Body = io.NopCloser(bytes.NewReader(body))
		resp, err := f.by.RoundTrip(try)
		if err == nil {
			return resp, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", server, err))
	}
	return nil, errors.Join(errs...)
}

const maxServerRequest = 1 << 20
