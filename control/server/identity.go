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

// membership is what a machine stores of the cluster that it is in, beside its identity.
type membership struct {
	Name      string   `json:"name"`
	Role      pki.Role `json:"role"`
	Founder   bool     `json:"founder,omitempty"` // it made the cluster
	Listen    string   `json:"listen"`            // where its API listens
	Advertise string   `json:"advertise"`         // where others reach that
	// Servers are the addresses at which the cluster's servers last answered, and Etcd those of an external etcd.
	Servers []string `json:"servers,omitempty"`
	Etcd    []string `json:"etcd,omitempty"`
	// Foreign means that the store is an external etcd, and not the servers'.
	Foreign bool `json:"foreign,omitempty"`
	// Join is where an agent joined. It goes on trying that address: the others may be behind it.
	Join string `json:"join,omitempty"`
	// Shared means that other machines are in the cluster: this one has to listen for them.
	Shared bool `json:"shared,omitempty"`
	// Initial are the servers' peer URLs by name, for a server that has joined and whose etcd has not started yet.
	Initial map[string]string `json:"initial,omitempty"`
}

// identityDir is the directory with a machine's identity. Every file in it is readable by root only, and is replaced
// atomically. The membership is written last: without it, the machine is in no cluster.
type identityDir struct {
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

// openIdentity reads a machine's identity; errNoMember where it has none.
func openIdentity(dir string) (*identityDir, error) {
	d := &identityDir{dir: dir}
	text, err := os.ReadFile(d.path(membershipFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, errNoMember
	}
	if err == nil {
		err = json.Unmarshal(text, &d.member)
	}
	if err == nil {
		err = d.load()
	}
	if err != nil {
		return nil, fmt.Errorf("read this machine's membership in %s: %w; "+
			"if it is damaged, move the directory away and join again", dir, err)
	}
	return d, nil
}

func (d *identityDir) load() error {
	pem := map[string][]byte{}
	for _, name := range []string{keyFile, certificateFile, authorityFile} {
		text, err := os.ReadFile(d.path(name))
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
	d.identity.Store(id)
	return nil
}

// newIdentity writes a new identity to a directory.
func newIdentity(dir string, id *pki.Identity, m membership) (*identityDir, error) {
	d := &identityDir{dir: dir, member: m}
	d.identity.Store(id)
	key, err := pki.EncodeKey(id.Key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep this machine's identity: %w", err)
	}
	files := map[string][]byte{
		keyFile:         key,
		certificateFile: pki.EncodeCertificate(id.Certificate),
		authorityFile:   pki.EncodeCertificate(id.Authority),
	}
	for name, data := range files {
		if err := d.write(name, data); err != nil {
			return nil, err
		}
	}
	return d, d.save(m)
}

// save writes the membership.
func (d *identityDir) save(m membership) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	d.member = m
	return d.write(membershipFile, append(data, '\n'))
}

// renew replaces the certificate; the key stays.
func (d *identityDir) renew(certificate []byte) error {
	cert, err := pki.ParseCertificate(certificate)
	if err != nil {
		return fmt.Errorf("renew this machine's certificate: %w", err)
	}
	if err := d.write(certificateFile, certificate); err != nil {
		return err
	}
	next := *d.identity.Load()
	next.Certificate = cert
	d.identity.Store(&next)
	return nil
}

// read gives a file's content; nil where there is none.
func (d *identityDir) read(name string) ([]byte, error) {
	data, err := os.ReadFile(d.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func (d *identityDir) remove(name string) error { return os.Remove(d.path(name)) }

func (d *identityDir) path(name string) string { return filepath.Join(d.dir, name) }

// write replaces a file atomically: after a crash it is the old one or the new one.
func (d *identityDir) write(name string, data []byte) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep this machine's identity: %w", err)
		}
	}()
	return renameio.WriteFile(d.path(name), data, 0o600, renameio.WithTempDir(d.dir))
}

// machine gives the ID of this machine, or rather of its data directory: several agents on one machine are several
// hosts.
func machine(dataDir string) (string, error) {
	path := filepath.Join(dataDir, "machine")
	text, err := os.ReadFile(path)
	if err == nil && len(text) > 0 {
		return string(text), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	k := &identityDir{dir: dataDir}
	id := newMachineID()
	return id, k.write("machine", []byte(id))
}
