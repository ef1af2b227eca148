package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/google/renameio/v2"

	"github.com/pergola-net/pergola/control/pki"
)

// membership is what a machine keeps of the cluster that it is in, beside its identity.
type membership struct {
	Name      string   `json:"name"`
	Role      pki.Role `json:"role"`
	Founder   bool     `json:"founder,omitempty"` // it made the cluster
	Listen    string   `json:"listen"`            // where its API listens
	Advertise string   `json:"advertise"`         // where others reach that
	// Servers are where the cluster's servers answered at the last look, and Etcd where their store does.
	Servers []string `json:"servers,omitempty"`
	Etcd    []string `json:"etcd,omitempty"`
	// Foreign means that the store is an etcd cluster of somebody else, and not the servers'.
	Foreign bool `json:"foreign,omitempty"`
	// Shared means that there are other machines in the cluster: they need this one to listen.
	Shared bool `json:"shared,omitempty"`
	// Initial has the members of the store's quorum by name, for a server that has joined and whose etcd has not started yet.
	Initial map[string]string `json:"initial,omitempty"`
}

// kept is the directory with a machine's identity. Every file in it is for root alone, and is replaced whole. The membership is
// written last: without it, there is none.
type kept struct {
	dir      string
	identity atomic.Pointer[pki.Identity]
	member   membership
}

const (
	membershipFile  = "member.json"
	keyFile         = "key.pem"
	certificateFile = "certificate.pem"
	authorityFile   = "authority.pem"
	// authorityKeyFile holds the key of a new cluster's authority until the store has it.
	authorityKeyFile = "authority-key.pem"
)

// errNoMember means that a machine is in no cluster.
var errNoMember = errors.New("this machine is in no cluster")

// openKept reads a machine's identity; errNoMember where it has none.
func openKept(dir string) (*kept, error) {
	k := &kept{dir: dir}
	text, err := os.ReadFile(k.path(membershipFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, errNoMember
	}
	if err == nil {
		err = json.Unmarshal(text, &k.member)
	}
	if err == nil {
		err = k.load()
	}
	if err != nil {
		return nil, fmt.Errorf("read this machine's membership in %s: %w; if it is damaged, move the directory away and join again", dir, err)
	}
	return k, nil
}

func (k *kept) load() error {
	pem := map[string][]byte{}
	for _, name := range []string{keyFile, certificateFile, authorityFile} {
		text, err := os.ReadFile(k.path(name))
		if err != nil {
			return err
		}
		pem[name] = text
	}
	id := new(pki.Identity)
	var err error
	if id.Key, err = pki.ParseKey(pem[keyFile]); err != nil {
		return fmt.Errorf("%s: %w", keyFile, err)
	}
	if id.Certificate, err = pki.ParseCertificate(pem[certificateFile]); err != nil {
		return fmt.Errorf("%s: %w", certificateFile, err)
	}
	if id.Authority, err = pki.ParseCertificate(pem[authorityFile]); err != nil {
		return fmt.Errorf("%s: %w", authorityFile, err)
	}
	k.identity.Store(id)
	return nil
}

// newKept writes a new identity down.
func newKept(dir string, id *pki.Identity, m membership) (*kept, error) {
	k := &kept{dir: dir, member: m}
	k.identity.Store(id)
	key, err := pki.EncodeKey(id.Key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep this machine's identity: %w", err)
	}
	files := map[string][]byte{
		keyFile: key, certificateFile: pki.EncodeCertificate(id.Certificate), authorityFile: pki.EncodeCertificate(id.Authority),
	}
	for name, data := range files {
		if err := k.write(name, data); err != nil {
			return nil, err
		}
	}
	return k, k.remember(m)
}

// remember writes the membership.
func (k *kept) remember(m membership) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	k.member = m
	return k.write(membershipFile, append(data, '\n'))
}

// renew puts a new certificate in the place of the old one; the key stays.
func (k *kept) renew(certificate []byte) error {
	cert, err := pki.ParseCertificate(certificate)
	if err != nil {
		return fmt.Errorf("renew this machine's certificate: %w", err)
	}
	if err := k.write(certificateFile, certificate); err != nil {
		return err
	}
	next := *k.identity.Load()
	next.Certificate = cert
	k.identity.Store(&next)
	return nil
}

// read gives a file's content; nil where there is none.
func (k *kept) read(name string) ([]byte, error) {
	data, err := os.ReadFile(k.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func (k *kept) remove(name string) error { return os.Remove(k.path(name)) }

func (k *kept) path(name string) string { return filepath.Join(k.dir, name) }

// write replaces a file at once: after a crash it is the old one or the new one.
func (k *kept) write(name string, data []byte) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep this machine's identity: %w", err)
		}
	}()
	return renameio.WriteFile(k.path(name), data, 0o600, renameio.WithTempDir(k.dir))
}

// machine tells this machine, or rather this data directory, from others: several agents on one machine are several hosts.
func machine(dataDir string) (string, error) {
	path := filepath.Join(dataDir, "machine")
	text, err := os.ReadFile(path)
	if err == nil && len(text) > 0 {
		return string(text), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	k := &kept{dir: dataDir}
	id := newMachineID()
	return id, k.write("machine", []byte(id))
}
