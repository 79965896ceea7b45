package http

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// secrets are texts that are shown to nobody, and that no state holds.
type secrets struct {
	texts []string // in the order in which they were added
	forms []string // as they are and as they stand in URLs, the longest first
}

// minSecret is how many bytes a text has, at least, that is hidden wherever it stands: a shorter one would hide half of what
// is shown, and protects nothing.
const minSecret = 4

// add takes a text up. A URL is not hidden as a whole: MaskURL hides what is secret in it.
func (s *secrets) add(text string) {
	if len(text) < minSecret || strings.Contains(text, "://") || slices.Contains(s.texts, text) {
		return
	}
	s.texts = append(s.texts, text)
	for _, form := range formsOf(text) {
		if !slices.Contains(s.forms, form) {
			s.forms = append(s.forms, form)
		}
	}
	slices.SortStableFunc(s.forms, func(a, b string) int { return len(b) - len(a) })
}

// formsOf are the ways in which a text may stand in a URL: as it is, escaped as one part, and escaped as a whole path or query.
func formsOf(text string) []string {
	return []string{text, url.QueryEscape(text), url.PathEscape(text), (&url.URL{Path: text}).EscapedPath(), escapeQuery(text)}
}

func (s *secrets) clone() *secrets {
	return &secrets{texts: slices.Clone(s.texts), forms: slices.Clone(s.forms)}
}

// hide replaces every secret in a text.
func (s *secrets) hide(text string) string {
	for _, form := range s.forms {
		text = strings.ReplaceAll(text, form, mask)
	}
	return text
}

// hidden is an error that shows no secret.
func (s *secrets) hidden(err error) error {
	text := err.Error()
	if shown := s.hide(text); shown != text {
		return &hiddenError{shown, err}
	}
	return err
}

// hiddenError stands before an error whose text has a secret: it is found by errors.Is and errors.As all the same.
type hiddenError struct {
	text string
	err  error
}

func (e *hiddenError) Error() string { return e.text }
func (e *hiddenError) Unwrap() error { return e.err }

// seal makes of a text one that may be kept: in place of each secret it has which one it is, and how it was written.
func (s *secrets) seal(text string) string {
	for i := range s.texts {
		for j, form := range formsOf(s.texts[i]) {
			text = strings.ReplaceAll(text, form, sealed(i, j))
		}
	}
	return text
}

// open is the text that seal was given, with the secrets as they are now.
func (s *secrets) open(text string) string {
	for i := range s.texts {
		for j, form := range formsOf(s.texts[i]) {
			text = strings.ReplaceAll(text, sealed(i, j), form)
		}
	}
	return text
}

// sealed stands for a secret, in a JSON text too.
func sealed(i, form int) string { return fmt.Sprintf("⟨secret %d.%d⟩", i, form) }
