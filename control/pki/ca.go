// Package pki is the cluster's trust: one certificate authority, certificates for its servers and agents, and the
// tokens by which a machine joins.
//
// A machine that joins has only a token. The token carries the pin of the authority (the SHA-256 of its public key, as
// in RFC 7469), so the machine checks the server before it sends the secret. It then has its own key certified, and
// from then on both ends authenticate each other (mutual TLS 1.3). Private keys never leave the machine that made them.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// How long certificates hold. Members renew theirs after two thirds of the time (see Renewal).
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	memberLife    = 90 * 24 * time.Hour
	// skew is how far a member's clock may be behind the authority's.
	skew = time.Hour
)

// Role is what a certificate's owner is in the cluster: its organisation, in X.509's words.
type Role string

// The roles.
const (
	Server Role = "pergola:servers"
	Agent  Role = "pergola:agents"
	Admin  Role = "pergola:admins"
)

// Word is the name of a role on the command line and in messages.
func (r Role) Word() string {
	switch r {
	case Server:
		return "server"
	case Agent:
		return "agent"
	case Admin:
		return "admin"
	}
	return string(r)
}

// Authority signs certificates.
type Authority struct {
	Certificate *x509.Certificate
	key         crypto.Signer
}

// NewAuthority makes an authority with a key of its own (ECDSA, P-256).
func NewAuthority(cluster string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a certificate authority: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "Pergola " + cluster},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate authority: %w", err)
	}
	return &Authority{Certificate: cert, key: key}, nil
}

// LoadAuthority reads what Encode wrote.
func LoadAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	cert, err := ParseCertificate(certPEM)
	if err != nil {
		return nil, fmt.Errorf("load the certificate authority: %w", err)
	}
	key, err := ParseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("load the certificate authority: %w", err)
	}
	if public, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(key.Public()) {
		return nil, errors.New("load the certificate authority: the key is not the certificate's")
	}
	if !cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, fmt.Errorf("load the certificate authority: the certificate of %s may not sign others",
			cert.Subject.CommonName)
	}
	return &Authority{Certificate: cert, key: key}, nil
}

// Encode gives the certificate and the private key as PEM.
func (a *Authority) Encode() (certPEM, keyPEM []byte, err error) {
	keyPEM, err = EncodeKey(a.key)
	return EncodeCertificate(a.Certificate), keyPEM, err
}

// Member is the content of a certificate. The authority decides it; of a request for a certificate only the public key
// counts.
type Member struct {
	Name  string // the host's name in the cluster
	Role  Role
	Hosts []string // addresses and DNS names by which others call a server
}

// Issue signs a certificate for the owner of the key. It serves for both ends of a connection: servers are clients of
// each other.
func (a *Authority) Issue(m Member, public crypto.PublicKey, now time.Time) (*x509.Certificate, error) {
	if err := a.refuses(m, public, now); err != nil {
		return nil, fmt.Errorf("issue a certificate for %q: %w", m.Name, err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: m.Name, Organization: []string{string(m.Role)}},
		NotBefore:   now.Add(-skew),
		NotAfter:    now.Add(memberLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if a.Certificate.NotAfter.Before(template.NotAfter) {
		template.NotAfter = a.Certificate.NotAfter
	}
	for _, host := range m.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	cert, err := sign(template, a.Certificate, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate for %s: %w", m.Name, err)
	}
	return cert, nil
}

// refuses returns why the authority signs no such certificate; nil where it does.
func (a *Authority) refuses(m Member, public crypto.PublicKey, now time.Time) error {
	key, ok := public.(*ecdsa.PublicKey)
	switch {
	case m.Name == "":
		return errors.New("its owner has no name")
	case m.Role != Server && m.Role != Agent && m.Role != Admin:
		return fmt.Errorf("unknown role %q", m.Role)
	case !ok || key.Curve != elliptic.P256():
		return errors.New("its key is none of ECDSA with P-256")
	case now.After(a.Certificate.NotAfter):
		return fmt.Errorf("the certificate authority expired at %s",
			a.Certificate.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// IssueRequest signs a certificate for the key of a PKCS #10 request (DER, RFC 2986). Its signature proves that the
// owner has the private key.
func (a *Authority) IssueRequest(m Member, request []byte, now time.Time) (*x509.Certificate, error) {
	parsed, err := x509.ParseCertificateRequest(request)
	if err == nil {
		err = parsed.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("issue a certificate for %s: read the request: %w", m.Name, err)
	}
	return a.Issue(m, parsed.PublicKey, now)
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Pin is the SHA-256 of a certificate's public key (SubjectPublicKeyInfo).
func Pin(cert *x509.Certificate) [sha256.Size]byte {
	return sha256.Sum256(cert.RawSubjectPublicKeyInfo)
}

// NewKey makes a member's private key.
func NewKey() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// Request makes the PKCS #10 request (DER) by which a member has its key certified.
func Request(key crypto.Signer) ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
}

// Renewal is when the next certificate should be requested: after two thirds of this one's life.
func Renewal(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) * 2 / 3)
}

// EncodeCertificate writes PEM.
func EncodeCertificate(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// ParseCertificate reads one PEM certificate.
func ParseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// EncodeKey writes PEM (PKCS #8).
func EncodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ParseKey reads what EncodeKey wrote.
func ParseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("no PEM private key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the private key cannot sign")
	}
	return signer, nil
}
