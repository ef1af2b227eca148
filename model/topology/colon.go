package topology

import (
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// joinColons puts back together what the YAML scanner takes apart: inside of braces it reads every colon as the end
// of a key, although only one that a blank follows is (YAML 1.2.2, section 7.3.3). So {ends: [a:eth1, b:eth1]} and
// {addresses: [fd00::1/64]} would be lists of maps. A key without a blank, {cpu:1}, is let pass as the scanner has it.
func joinColons(tokens token.Tokens) token.Tokens {
	joined := make(token.Tokens, 0, len(tokens))
	var open []token.Type // brackets and braces
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			open = append(open, t.Type)
		case token.MappingEndType, token.SequenceEndType:
			open = open[:max(0, len(open)-1)]
		case token.MappingValueType:
			if i+1 == len(tokens) || len(open) == 0 || !joins(joined, t, tokens[i+1], open[len(open)-1]) {
				break
			}
			joined = append(joined[:len(joined)-ownWord(joined, t)], join(joined, t, tokens[i+1])...)
			i++
			continue
		default:
		}
		joined = append(joined, t)
	}
	for i, t := range joined {
		t.Prev, t.Next = nil, nil
		if i > 0 {
			t.Prev, joined[i-1].Next = joined[i-1], t
		}
	}
	return joined
}

// joins reports whether a colon stands inside of a word: next to what follows, in a list, or in a key that ends with
// a colon and a blank later.
func joins(before token.Tokens, colon, next *token.Token, in token.Type) bool {
	if !isWord(next) || next.Position.Line != colon.Position.Line || next.Position.Column != colon.Position.Column+1 {
		return false
	}
	if in == token.SequenceStartType {
		return true
	}
	return ownWord(before, colon) == 1 && (strings.Contains(next.Value, ": ") || strings.HasSuffix(next.Value, ":"))
}

// ownWord is 1 where the token before a colon is a word that touches it, else 0.
func ownWord(before token.Tokens, colon *token.Token) int {
	if len(before) == 0 {
		return 0
	}
	word := before[len(before)-1]
	end := word.Position.Column + utf8.RuneCountInString(word.Value)
	if isWord(word) && word.Position.Line == colon.Position.Line && end == colon.Position.Column {
		return 1
	}
	return 0
}

// isWord reports whether a token is a scalar without quotes.
func isWord(t *token.Token) bool {
	switch t.Type {
	case token.StringType, token.IntegerType, token.FloatType, token.BinaryIntegerType, token.OctetIntegerType,
		token.HexIntegerType, token.BoolType, token.NullType, token.InfinityType, token.NanType:
		return true
	default:
		return false
	}
}

// join makes one word of the word before a colon, the colon and the word after it. Where the latter holds the end
// of a key, it gives key, colon and value.
func join(before token.Tokens, colon, next *token.Token) token.Tokens {
	at, text := *colon.Position, ":"+next.Value
	if ownWord(before, colon) == 1 {
		word := before[len(before)-1]
		at, text = *word.Position, word.Value+text
	}
	key, value, isKey := strings.Cut(text, ": ")
	if !isKey && strings.HasSuffix(text, ":") && next.Value != ":" {
		key, isKey = strings.TrimSuffix(text, ":"), true
	}
	if !isKey {
		return token.Tokens{token.String(text, text, &at)}
	}
	end := at
	end.Column += utf8.RuneCountInString(key)
	parts := token.Tokens{token.String(key, key, &at), token.MappingValue(&end)}
	if trimmed := strings.TrimSpace(value); trimmed != "" {
		start := end
		start.Column += 1 + utf8.RuneCountInString(value) - utf8.RuneCountInString(strings.TrimLeft(value, " ")) + 1
		parts = append(parts, token.New(trimmed, value, &start))
	}
	return parts
}
