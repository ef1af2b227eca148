package api

import (
	"time"

	"github.com/pergola-net/pergola/control/pki"
)

// ClusterStatus is the state of the cluster as the answering machine has it.
type ClusterStatus struct {
	AnsweredBy Version `json:"answered_by"` // this machine's server or agent

	Self    string   `json:"self,omitempty"` // empty: a machine that is in no cluster
	Server  bool     `json:"server"`         // this one is a server
	Hosts   int      `json:"hosts"`
	Alive   int      `json:"alive"`
	Servers []Member `json:"servers"` // that keep the store
	// Trouble is set where the servers cannot decide: reading works, changes do not.
	Trouble string `json:"trouble,omitempty"`
	// Authority is when the cluster's certificate authority expires, and with it all certificates.
	Authority time.Time `json:"authority,omitzero"`
	// Lacks name what networks cannot have on the answering machine, for a person.
	Lacks []string `json:"lacks,omitempty"`
	// Warnings name what works and should not stay as it is, for a person.
	Warnings []string `json:"warnings,omitempty"`
}

// Member is a server that keeps the store.
type Member struct {
	Name    string `json:"name"`
	Peer    string `json:"peer"` // URL by which the others reach it
	Answers bool   `json:"answers"`
	Leader  bool   `json:"leader,omitempty"`
	Learner bool   `json:"learner,omitempty"` // it joined, and has no vote yet
}

// JoinRequest is sent by a machine that asks to become a member. The token is all that it has of the cluster.
type JoinRequest struct {
	Token   string   `json:"token"`
	Request []byte   `json:"request"` // PKCS #10, DER
	Role    pki.Role `json:"role" doc:"What it wants to be; the token must be for it."`
	Name    string   `json:"name" doc:"Of the host in the cluster."`
	Machine string   `json:"machine" doc:"Tells it from another machine of that name."`
	API     string   `json:"api" doc:"host:port where others will reach its API."`
	Version string   `json:"version,omitempty"`
}

// JoinAnswer is what a new member needs.
type JoinAnswer struct {
	Certificate string   `json:"certificate"` // PEM
	Authority   string   `json:"authority"`   // PEM
	Servers     []string `json:"servers"`     // host:port of APIs
	Etcd        []string `json:"etcd"`        // endpoints of the store
	// Foreign is true where the store is an etcd cluster that is not the servers'.
	Foreign bool      `json:"foreign,omitempty" doc:"The store is not the servers': certificates for it are each machine's own."`
	Time    time.Time `json:"time"` // by the server's clock
	// Initial has the members of the store's quorum and their peer URLs, by name, the new one included: for servers
	// alone.
	Initial map[string]string `json:"initial,omitempty"`
}

// RenewRequest asks for a new certificate for a member's key.
type RenewRequest struct {
	Request []byte `json:"request"` // PKCS #10, DER
	API     string `json:"api" doc:"host:port where others reach its API."`
}

// RenewAnswer has the new certificate.
type RenewAnswer struct {
	Certificate string `json:"certificate"` // PEM
}
