package api

import (
	"time"

	"github.com/pergola-net/pergola/control/pki"
)

// Token is a token as the cluster stores it. Its text is shown once, when it is made.
type Token struct {
	ID      string    `json:"id"`
	Role    pki.Role  `json:"role"`
	Note    string    `json:"note,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Expired bool      `json:"expired,omitempty"`
}

// TokenRequest asks for a token.
type TokenRequest struct {
	Role pki.Role      `json:"role"`
	Life time.Duration `json:"life" doc:"ns; 0: a day."`
	Note string        `json:"note,omitempty"`
}

// CreatedToken is a new token. Text is a secret.
type CreatedToken struct {
	Token
	Text string `json:"text"`
	Join string `json:"join"` // where to use it: https://host:port
}

// Command is the command line to run on the machine that is to join.
func (t CreatedToken) Command() string {
	verb := "agent"
	if t.Role == pki.Server {
		verb = "server"
	}
	return "pergola " + verb + " --join " + t.Join + " --token " + t.Text
}
