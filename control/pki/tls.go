package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Identity is a member's certificate, its key, and the certificate of the authority.
type Identity struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
	Authority   *x509.Certificate
}

// TLS is the certificate in the form of crypto/tls. The authority's goes with it: a machine that joins has only its
// pin.
func (id *Identity) TLS() tls.Certificate {
	return tls.Certificate{
		Certificate: [][]byte{id.Certificate.Raw, id.Authority.Raw}, PrivateKey: id.Key, Leaf: id.Certificate,
	}
}

// ServerConfig is for listeners. Clients without a certificate are accepted, since they may want to join; what else
// they may do, the handlers decide by PeerOf. The identity is asked for at each connection, so that a renewed one is
// shown at once.
func ServerConfig(now func() *Identity) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			id := now()
			return &tls.Config{
				MinVersion:   tls.VersionTLS13,
				NextProtos:   []string{"h2", "http/1.1"},
				Certificates: []tls.Certificate{id.TLS()},
				ClientAuth:   tls.VerifyClientCertIfGiven,
				ClientCAs:    pool(id.Authority),
				// No session is resumed: a renewed or revoked certificate counts at the next
				// connection.
				SessionTicketsDisabled: true,
			}, nil
		},
	}
}

// ClientConfig is for members that connect to a server: it must be a server of the same cluster, at any name or
// address. Names are not compared, because a server is identified by its role: addresses change, and NAT may be in
// between.
func ClientConfig(now func() *Identity) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // VerifyConnection checks the role instead of the name
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert := now().TLS()
			return &cert, nil
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			return verifyServer(state.PeerCertificates, now().Authority)
		},
	}
}

// PeerConfig is for members that connect to a certain other one, server or agent: it must have that name.
func PeerConfig(now func() *Identity, name string) *tls.Config {
	config := ClientConfig(now)
	config.VerifyConnection = func(state tls.ConnectionState) error {
		m, err := verify(state.PeerCertificates, now().Authority, time.Now())
		if err == nil && m.Name != name {
			err = fmt.Errorf("%s answers in place of %s: an address that moved?", m.Name, name)
		}
		return err
	}
	return config
}

// JoinConfig is for a machine that has only a token: the server must show the authority that the token pins, and a
// certificate of it.
func JoinConfig(t Token) *tls.Config { return joinConfig(t, verifyServer) }

// ClockConfig is JoinConfig without a check of the certificate's times. It serves only to ask a server for its time
// after a ClockError: an expired certificate would pass.
func ClockConfig(t Token) *tls.Config {
	return joinConfig(t, func(chain []*x509.Certificate, authority *x509.Certificate) error {
		_, err := verify(chain, authority, chain[0].NotBefore)
		return err
	})
}

func joinConfig(t Token, check func(chain []*x509.Certificate, authority *x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // VerifyConnection checks the pin
		VerifyConnection: func(state tls.ConnectionState) error {
			for _, cert := range state.PeerCertificates {
				if cert.IsCA && Pin(cert) == t.Pin {
					return check(state.PeerCertificates, cert)
				}
			}
			return ErrPin
		},
	}
}

// ErrPin means that the server is not of the cluster that made the token.
var ErrPin = errors.New("this is not the cluster that the token is from: its certificate authority is another one")

// ErrNoServer means that a member of the cluster answered that is no server.
var ErrNoServer = errors.New("which is no server of the cluster")

// ClockError means that a certificate does not hold now, by this machine's clock.
type ClockError struct{ From, To, Now time.Time }

func (e *ClockError) Error() string {
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	return fmt.Sprintf("its certificate is valid from %s to %s, and this machine's clock says %s: is it right?",
		stamp(e.From), stamp(e.To), stamp(e.Now))
}

func verifyServer(chain []*x509.Certificate, authority *x509.Certificate) error {
	m, err := verify(chain, authority, time.Now())
	if err == nil && m.Role != Server {
		err = fmt.Errorf("%s answers, %w (it is an %s)", m.Name, ErrNoServer, m.Role.Word())
	}
	return err
}

// verify gives the member that shows the chain, if the authority signed it and it holds at that time.
func verify(chain []*x509.Certificate, authority *x509.Certificate, now time.Time) (Member, error) {
	if len(chain) == 0 {
		return Member{}, errors.New("it has no certificate")
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: pool(authority), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, CurrentTime: now,
	})
	if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return Member{}, &ClockError{From: chain[0].NotBefore, To: chain[0].NotAfter, Now: now}
	}
	if stranger := (x509.UnknownAuthorityError{}); errors.As(err, &stranger) {
		return Member{}, errors.New("its certificate is not of this cluster: another authority signed it; " +
			"if the cluster has a new one, the machine that still has the old one has to join again")
	}
	if err != nil {
		return Member{}, fmt.Errorf("its certificate is not of this cluster: %w", err)
	}
	return memberOf(chain[0]), nil
}

// PeerOf gives, at a server, the member at the other end of a connection; ok is false where it showed no certificate.
func PeerOf(state *tls.ConnectionState) (m Member, ok bool) {
	cert := CertificateOf(state)
	if cert == nil {
		return Member{}, false
	}
	return memberOf(cert), true
}

// CertificateOf is the certificate that the other end showed, at a server; nil where it showed none that holds.
func CertificateOf(state *tls.ConnectionState) *x509.Certificate {
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	return state.VerifiedChains[0][0]
}

func memberOf(cert *x509.Certificate) Member {
	m := Member{Name: cert.Subject.CommonName}
	if len(cert.Subject.Organization) == 1 {
		m.Role = Role(cert.Subject.Organization[0])
	}
	return m
}

func pool(cert *x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(cert)
	return p
}
