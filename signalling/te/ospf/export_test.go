package ospf

// Sign is for tests that change LSAs.
var Sign = sign
