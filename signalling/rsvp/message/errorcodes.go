package message

import "fmt"

// ErrorCode is the code of an ErrorSpec.
type ErrorCode uint8

// The codes that IANA lists for the RFCs of this package.
const (
	Confirmation      ErrorCode = 0
	AdmissionFailure  ErrorCode = 1
	PolicyFailure     ErrorCode = 2
	NoPathInformation ErrorCode = 3
	NoSender          ErrorCode = 4
	ConflictingStyle  ErrorCode = 5
	UnknownStyle      ErrorCode = 6
	ConflictingPorts  ErrorCode = 7
	ConflictingSender ErrorCode = 8
	Preempted         ErrorCode = 12
	UnknownClass      ErrorCode = 13
	UnknownCType      ErrorCode = 14
	APIError          ErrorCode = 20
	TrafficControl    ErrorCode = 21
	SystemError       ErrorCode = 22
	ProtocolError     ErrorCode = 23 // RSVP system error
	RoutingProblem    ErrorCode = 24
	Notify            ErrorCode = 25
	UnknownAttribute  ErrorCode = 29
	UnknownBit        ErrorCode = 30
)

// Values of RoutingProblem.
const (
	BadExplicitRoute  = 1
	BadStrictNode     = 2
	BadLooseNode      = 3
	BadInitialStep    = 4
	NoRoute           = 5
	UnacceptableLabel = 6
	RouteLoop         = 7
	NoMPLS            = 8
	LabelAllocation   = 9
	UnsupportedL3PID  = 10
)

// Values of AdmissionFailure, PolicyFailure and Notify.
const (
	BandwidthUnavailable = 2
	DelayUnavailable     = 1
	RouteTooLarge        = 1 // Notify: RECORD_ROUTE is too large for the MTU
	FlowPreempted        = 5 // PolicyFailure (RFC 5712)
	LocallyRepaired      = 3 // Notify: the tunnel is repaired locally
	PreferablePath       = 6 // Notify (RFC 4736)
)

var codeNames = map[ErrorCode]string{Confirmation: "confirmation", AdmissionFailure: "admission control failure",
	PolicyFailure: "policy control failure", NoPathInformation: "no path information",
	NoSender:         "no sender information",
	ConflictingStyle: "conflicting reservation style", UnknownStyle: "unknown reservation style",
	ConflictingPorts: "conflicting destination ports", ConflictingSender: "conflicting sender ports",
	Preempted: "service preempted", UnknownClass: "unknown object class", UnknownCType: "unknown object C-Type",
	APIError: "API error", TrafficControl: "traffic control error", SystemError: "traffic control system error",
	ProtocolError: "RSVP system error", RoutingProblem: "routing problem", Notify: "notify",
	UnknownAttribute: "unknown attributes TLV", UnknownBit: "unknown attributes bit"}

var valueNames = map[ErrorCode]map[uint16]string{
	AdmissionFailure: {DelayUnavailable: "delay bound cannot be met",
		BandwidthUnavailable: "requested bandwidth unavailable",
		3:                    "MTU in flowspec larger than interface MTU"},
	RoutingProblem: {BadExplicitRoute: "bad EXPLICIT_ROUTE", BadStrictNode: "bad strict node",
		BadLooseNode: "bad loose node", BadInitialStep: "bad initial subobject",
		NoRoute: "no route toward destination", UnacceptableLabel: "unacceptable label value",
		RouteLoop:       "RECORD_ROUTE indicated routing loops",
		NoMPLS:          "MPLS negotiated, but a router is not capable of it",
		LabelAllocation: "MPLS label allocation failure", UnsupportedL3PID: "unsupported L3PID"},
	PolicyFailure: {FlowPreempted: "flow was preempted"},
	Notify: {RouteTooLarge: "RECORD_ROUTE too large for MTU", 2: "RECORD_ROUTE notification",
		LocallyRepaired: "tunnel locally repaired", PreferablePath: "preferable path exists"},
}

func (c ErrorCode) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return fmt.Sprintf("error code %d", uint8(c))
}

// ErrorText is a code and value in words.
func ErrorText(c ErrorCode, value uint16) string {
	if name, ok := valueNames[c][value]; ok {
		return fmt.Sprintf("%s: %s", c, name)
	}
	switch {
	case c == UnknownClass || c == UnknownCType:
		return fmt.Sprintf("%s: class %d, C-Type %d", c, value>>8, value&0xff)
	case value == 0:
		return c.String()
	}
	return fmt.Sprintf("%s: value %d", c, value)
}
