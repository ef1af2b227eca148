package message

// class is what is known of an object class: its name in the RFCs, and how its C-Types are read.
type class struct {
	name  string
	types map[uint8]func(*reader) Object
}

// Class numbers, as IANA lists them.
const (
	classSession            = 1
	classHop                = 3
	classIntegrity          = 4
	classTimeValues         = 5
	classErrorSpec          = 6
	classScope              = 7
	classStyle              = 8
	classFlowspec           = 9
	classFilterSpec         = 10
	classSenderTemplate     = 11
	classSenderTspec        = 12
	classAdspec             = 13
	classPolicyData         = 14
	classResvConfirm        = 15
	classLabel              = 16
	classLabelRequest       = 19
	classExplicitRoute      = 20
	classRecordRoute        = 21
	classHello              = 22
	classMessageID          = 23
	classMessageIDAck       = 24
	classMessageIDList      = 25
	classRecoveryLabel      = 34
	classDetour             = 63
	classRequiredAttributes = 67
	classSuggestedLabel     = 129
	classRestartCap         = 131
	classCapability         = 134
	classUserError          = 194
	classAttributes         = 197
	classFastReroute        = 205
	classSessionAttribute   = 207
)

type types = map[uint8]func(*reader) Object

// classes is filled at start, as its functions refer to it.
var classes map[uint8]class

func init() {
	classes = map[uint8]class{
		classSession: {"SESSION", types{1: readFlowSession((*reader).v4), 2: readFlowSession((*reader).v6),
			7: readSession((*reader).v4), 8: readSession((*reader).v6)}},
		classHop:        {"RSVP_HOP", types{1: readHop((*reader).v4), 2: readHop((*reader).v6)}},
		classIntegrity:  {"INTEGRITY", types{1: readIntegrity}},
		classTimeValues: {"TIME_VALUES", types{1: readTimeValues}},
		classErrorSpec:  {"ERROR_SPEC", types{1: readErrorSpec((*reader).v4), 2: readErrorSpec((*reader).v6)}},
		classScope:      {"SCOPE", types{1: readScope((*reader).v4), 2: readScope((*reader).v6)}},
		classStyle:      {"STYLE", types{1: readStyle}},
		classFlowspec:   {"FLOWSPEC", types{2: readFlowspec}},
		classFilterSpec: {"FILTER_SPEC", types{1: readFlowFilter((*reader).v4), 2: readFlowFilter((*reader).v6),
			7: readFilterSpec((*reader).v4), 8: readFilterSpec((*reader).v6)}},
		classSenderTemplate: {"SENDER_TEMPLATE", types{1: readFlowTemplate((*reader).v4),
			2: readFlowTemplate((*reader).v6),
			7: readSenderTemplate((*reader).v4), 8: readSenderTemplate((*reader).v6)}},
		classSenderTspec: {"SENDER_TSPEC", types{2: readSenderTspec}},
		classAdspec:      {"ADSPEC", types{2: readAdspec}},
		classPolicyData:  {"POLICY_DATA", types{1: readPolicyData}},
		classResvConfirm: {"RESV_CONFIRM", types{1: readResvConfirm((*reader).v4),
			2: readResvConfirm((*reader).v6)}},
		classLabel:              {"LABEL", types{1: readLabel}},
		classLabelRequest:       {"LABEL_REQUEST", types{1: readLabelRequest}},
		classExplicitRoute:      {"EXPLICIT_ROUTE", types{1: readExplicitRoute}},
		classRecordRoute:        {"RECORD_ROUTE", types{1: readRecordRoute}},
		classHello:              {"HELLO", types{1: readHello(false), 2: readHello(true)}},
		classMessageID:          {"MESSAGE_ID", types{1: readID}},
		classMessageIDAck:       {"MESSAGE_ID_ACK", types{1: readIDAck(false), 2: readIDAck(true)}},
		classMessageIDList:      {"MESSAGE_ID_LIST", types{1: readIDList}},
		classRecoveryLabel:      {"RECOVERY_LABEL", types{1: readRecoveryLabel}},
		classDetour:             {"DETOUR", types{7: readDetour((*reader).v4), 8: readDetour((*reader).v6)}},
		classRequiredAttributes: {"LSP_REQUIRED_ATTRIBUTES", types{1: readRequiredAttributes}},
		classSuggestedLabel:     {"SUGGESTED_LABEL", types{1: readSuggestedLabel}},
		classRestartCap:         {"RESTART_CAP", types{1: readRestartCap}},
		classCapability:         {"CAPABILITY", types{1: readCapability}},
		classUserError:          {"USER_ERROR_SPEC", types{1: readUserError}},
		classAttributes:         {"LSP_ATTRIBUTES", types{1: readAttributes}},
		classFastReroute:        {"FAST_REROUTE", types{1: readFastReroute}},
		classSessionAttribute: {"SESSION_ATTRIBUTE", types{1: readSessionAttribute(true),
			7: readSessionAttribute(false)}},
	}
}
