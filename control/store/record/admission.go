package record

import (
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pergola-net/pergola/control/pki"
)

// RevokedError says why the owner of a certificate is no member any more. It is an ErrNoHost and, where another machine
// has the name now, an ErrReplaced.
type RevokedError struct{ Reason string }

// ReasonRemoved is the Reason of a host that was removed from the cluster.
const ReasonRemoved = "this host was removed from the cluster: let it join again"

func (e *RevokedError) Error() string { return e.Reason }

// Is also recognises an error that came over the wire as text.
func (e *RevokedError) Is(target error) bool {
	return target == ErrNoHost || target == ErrReplaced && strings.HasPrefix(e.Reason, ErrReplaced.Error())
}

// Admission states by which key a host is a member. Certificates hold for weeks, and names are used again: a
// certificate of the name for any other key is revoked. It belongs to a host that was removed, or to one whose name
// another machine has taken. A renewed certificate is for the same key. A host without an admission (the one that made
// the cluster, and those that joined by a version before admissions) is a member by any certificate, unless that
// version removed it (see Barred).
//
// A removed server is kept out in the same way. But it had the authority's key and can sign itself another name: only
// a new authority ends that.
type Admission struct {
	Key   string    `json:"key,omitempty"` // SHA-256 of the public key, in hex; empty: the host was removed
	Since time.Time `json:"since"`
}

// Admit makes the admission of a certificate's owner.
func Admit(cert *x509.Certificate, now time.Time) Admission {
	return Admission{Key: keyOf(cert), Since: now}
}

// AdmissionKey is the key of a host's admission.
func (p Prefix) AdmissionKey(host string) string { return p.TrustKey("admissions", host) }

// Encode gives the value to store.
func (a Admission) Encode() string {
	data, err := json.Marshal(a)
	if err != nil {
		panic(err) // a string and a time
	}
	return string(data)
}

// DecodeAdmission reads a stored value. One that cannot be read admits no certificate.
func DecodeAdmission(data []byte) (a Admission) {
	if err := json.Unmarshal(data, &a); err != nil {
		return Admission{Since: time.Now()}
	}
	return a
}

// Check returns a RevokedError where the certificate is revoked; nil where its owner is a member.
func (a Admission) Check(cert *x509.Certificate) error {
	switch a.Key {
	case keyOf(cert):
		return nil
	case "":
		return &RevokedError{ReasonRemoved}
	}
	return &RevokedError{fmt.Sprintf("%v as host %s, at %s: let this one join again, under another name",
		ErrReplaced, cert.Subject.CommonName, a.Since.UTC().Format(time.RFC3339))}
}

// MayBeOutdated reports whether a certificate may belong to a later admission, which this server has not received yet:
// a server that was off for long receives later admissions only from servers that joined meanwhile. Certificates hold
// from an hour before they are signed, so clocks that differ by less do not matter.
func (a Admission) MayBeOutdated(cert *x509.Certificate) bool { return cert.NotBefore.After(a.Since) }

// Barred reads what versions before admissions wrote when a host was removed: from when on certificates of its name
// count again, in Unix time. What cannot be read bars all certificates.
func Barred(data []byte, cert *x509.Certificate) bool {
	until, err := strconv.ParseInt(string(data), 10, 64)
	return err != nil || cert.NotBefore.Unix() < until
}

func keyOf(cert *x509.Certificate) string {
	pin := pki.Pin(cert)
	return hex.EncodeToString(pin[:])
}
