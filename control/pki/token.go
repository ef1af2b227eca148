package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Token is the permission to join. Its text is one word of letters, digits and hyphens, so that a double click selects
// all of it:
//
//	pergola-<id>-<secret>-<pin>
type Token struct {
	ID     string // public: by this it is listed and revoked
	secret string
	Pin    [sha256.Size]byte // of the authority
}

// Grant is what the store holds of a token: enough to recognise the token, too little to use it.
type Grant struct {
	ID      string            `json:"id"`
	Hash    [sha256.Size]byte `json:"hash"` // of the secret, which has 130 random bits and so needs no slow hash
	Role    Role              `json:"role"`
	Note    string            `json:"note,omitempty"`
	Created time.Time         `json:"created"`
	Expires time.Time         `json:"expires"`
}

const (
	tokenPrefix  = "pergola"
	idLength     = 8
	secretLength = 26
)

var (
	alphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	// ErrToken is wrapped by every refusal of a token.
	ErrToken = errors.New("token refused")
)

// NewToken makes a token for the authority, and the grant to store.
func NewToken(a *Authority, role Role, note string, life time.Duration, now time.Time) (Token, Grant) {
	text := strings.ToLower(rand.Text() + rand.Text()) // 26 characters of base32 each
	t := Token{ID: text[:idLength], secret: text[secretLength : 2*secretLength], Pin: Pin(a.Certificate)}
	return t, Grant{
		ID: t.ID, Hash: sha256.Sum256([]byte(t.secret)), Role: role, Note: note, Created: now,
		Expires: now.Add(life),
	}
}

// String names the token without its secret: it is safe in logs.
func (t Token) String() string { return tokenPrefix + "-" + t.ID + "-..." }

// Text is the token as users copy it. It contains the secret.
func (t Token) Text() string {
	return strings.Join([]string{tokenPrefix, t.ID, t.secret, alphabet.EncodeToString(t.Pin[:])}, "-")
}

// ParseToken reads a token's text. White space around it is dropped.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	parts := strings.Split(text, "-")
	if parts[0] != tokenPrefix || len(parts) > 4 {
		return Token{}, fmt.Errorf("%w: a token looks like %s-ID-SECRET-PIN", ErrToken, tokenPrefix)
	}
	if len(parts) < 4 || len(parts[1]) != idLength || len(parts[2]) != secretLength {
		return Token{}, fmt.Errorf(
			"%w: it has %d characters and is not whole: was its end cut off when it was copied?",
			ErrToken, len(text))
	}
	pin, err := alphabet.DecodeString(parts[3])
	if err != nil || len(pin) != sha256.Size {
		return Token{}, fmt.Errorf("%w: its last part is not whole: was its end cut off when it was copied?",
			ErrToken)
	}
	return Token{ID: parts[1], secret: parts[2], Pin: [sha256.Size]byte(pin)}, nil
}

// Check returns an ErrToken unless the token is the one of the grant and holds.
func (g Grant) Check(t Token, now time.Time) error {
	hash := sha256.Sum256([]byte(t.secret))
	switch {
	case g.ID != t.ID || subtle.ConstantTimeCompare(hash[:], g.Hash[:]) != 1:
		return fmt.Errorf("%w: this cluster did not make it, or it was revoked", ErrToken)
	case !now.Before(g.Expires):
		return fmt.Errorf("%w: it expired at %s", ErrToken, g.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}
