package pki

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
)

// Seal keeps a secret of the servers where agents can read, such as the authority's key in the store: AES-256-GCM, with a random nonce in front. A
// server gets the key over the connection by which it joins.
type Seal [32]byte

// NewSeal makes a key.
func NewSeal() Seal {
	var s Seal
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// Close hides a secret. It is opened under the same name alone.
func (s Seal) Close(name string, secret []byte) ([]byte, error) {
	aead, err := s.aead()
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", name, err)
	}
	return aead.Seal(nil, nil, secret, []byte(name)), nil
}

// Open shows what Close hid.
func (s Seal) Open(name string, sealed []byte) ([]byte, error) {
	aead, err := s.aead()
	if err != nil {
		return nil, fmt.Errorf("unseal %s: %w", name, err)
	}
	secret, err := aead.Open(nil, nil, sealed, []byte(name))
	if err != nil {
		return nil, fmt.Errorf("unseal %s: %w", name, errors.New("it was sealed with another key, or was changed"))
	}
	return secret, nil
}

func (s Seal) aead() (cipher.AEAD, error) {
	block, err := aes.NewCipher(s[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
