package http

// Tokens are the OAuth2 tokens of a process. It is safe for concurrent use.
type Tokens struct{}

// NewTokens returns a Tokens that has none yet.
func NewTokens() *Tokens { return &Tokens{} }
