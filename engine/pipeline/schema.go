package pipeline

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	says "github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// jsonSchema is a compiled JSON Schema. It may be used by any number of goroutines.
type jsonSchema struct {
	compiled *jsonschema.Schema
	// suspended says that the schema itself names that member of configs.
	suspended bool
}

// SchemaError is a value that does not fit a JSON Schema. It quotes the schema and names of members, never a value.
type SchemaError struct{ Misfits []Misfit }

// Misfit is one thing of a value that does not fit: Path leads to it, by names of members and numbers of elements.
type Misfit struct {
	Path []string
	What string
	// Certain says that more members could not make it fit.
	Certain bool
	// wrongType says that the value is of another type than the schema wants.
	wrongType bool
}

func (m *Misfit) String() string {
	if len(m.Path) == 0 {
		return "it " + m.What
	}
	return strings.Join(m.Path, ".") + " " + m.What
}

// misfitsShown is how many misfits an error lists.
const misfitsShown = 5

func (e *SchemaError) Error() string {
	var list []string
	for i := range e.Misfits {
		if i == misfitsShown {
			list = append(list, fmt.Sprintf("%d more", len(e.Misfits)-i))
			break
		}
		list = append(list, e.Misfits[i].String())
	}
	return strings.Join(list, "; ")
}

// check tells whether a config fits. Its error is a *SchemaError, unless text is no JSON.
func (s *jsonSchema) check(text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return errors.New("it is not JSON")
	}
	var found []Misfit
	if object, ok := value.(map[string]any); ok && !s.suspended {
		if v, ok := object["suspended"]; ok {
			if _, isBool := v.(bool); !isBool {
				found = append(found, Misfit{Path: []string{"suspended"}, What: "is true or false", Certain: true, wrongType: true})
			}
			delete(object, "suspended")
		}
	}
	var wrong *jsonschema.ValidationError
	if errors.As(s.compiled.Validate(value), &wrong) {
		found = misfits(found, wrong)
	}
	if len(found) == 0 {
		return nil
	}
	slices.SortStableFunc(found, func(a, b Misfit) int { return cmp.Or(slices.Compare(a.Path, b.Path), cmp.Compare(a.What, b.What)) })
	return &SchemaError{found}
}

// misfits lists what is behind a ValidationError.
func misfits(to []Misfit, e *jsonschema.ValidationError) []Misfit {
	add := func(what string, more ...string) {
		to = append(to, Misfit{slices.Concat(e.InstanceLocation, more), what, true, false})
	}
	missing := func(what string, names []string) {
		for _, name := range names {
			to = append(to, Misfit{slices.Concat(e.InstanceLocation, []string{name}), what, false, false})
		}
	}
	switch k := e.ErrorKind.(type) {
	case *says.Schema, *says.Group, *says.AllOf, *says.Reference:
		for _, cause := range e.Causes {
			to = misfits(to, cause)
		}
	case *says.Required:
		missing("is missing", k.Missing)
	case *says.DependentRequired:
		missing(fmt.Sprintf("is missing beside %s", k.Prop), k.Missing)
	case *says.Dependency:
		missing(fmt.Sprintf("is missing beside %s", k.Prop), k.Missing)
	case *says.AdditionalProperties:
		for _, name := range k.Properties {
			add("is none of the members that the schema names", name)
		}
	case *says.PropertyNames:
		add("has a name that the schema does not take", k.Property)
	case *says.Type:
		var want []string
		for _, t := range k.Want {
			want = append(want, typeWord(t))
		}
		add(fmt.Sprintf("is %s, and the schema wants %s", typeWord(k.Got), wording.List(want, "or")))
		to[len(to)-1].wrongType = true
	case *says.AnyOf, *says.OneOf, *says.Not, *says.MinProperties, *says.MinItems, *says.Contains, *says.MinContains:
		add(misfit(e.ErrorKind))
		to[len(to)-1].Certain = false
	default:
		add(misfit(e.ErrorKind))
	}
	return to
}

const fitsNone = "fits none of the schema's alternatives"

// misfit says what is wrong with one value.
func misfit(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *says.Enum:
		if len(k.Want) == 1 {
			return "is not " + values(k.Want)[0]
		}
		return "is none of " + wording.List(values(k.Want), "and")
	case *says.Const:
		return "is not " + values([]any{k.Want})[0]
	case *says.Format:
		return fmt.Sprintf("is not of the format %s", k.Want)
	case *says.Pattern:
		return fmt.Sprintf("does not match %s", k.Want)
	case *says.MinLength:
		return fmt.Sprintf("is shorter than %s", wording.Count(k.Want, "character"))
	case *says.MaxLength:
		return fmt.Sprintf("is longer than %s", wording.Count(k.Want, "character"))
	case *says.MinItems:
		return fmt.Sprintf("has fewer than %s", wording.Count(k.Want, "element"))
	case *says.MaxItems:
		return fmt.Sprintf("has more than %s", wording.Count(k.Want, "element"))
	case *says.MinProperties:
		return fmt.Sprintf("has fewer than %s", wording.Count(k.Want, "member"))
	case *says.MaxProperties:
		return fmt.Sprintf("has more than %s", wording.Count(k.Want, "member"))
	case *says.Minimum:
		return "is less than " + decimal(k.Want)
	case *says.Maximum:
		return "is more than " + decimal(k.Want)
	case *says.ExclusiveMinimum:
		return "is not more than " + decimal(k.Want)
	case *says.ExclusiveMaximum:
		return "is not less than " + decimal(k.Want)
	case *says.MultipleOf:
		return "is no multiple of " + decimal(k.Want)
	case *says.UniqueItems:
		return "has the same element twice"
	case *says.AnyOf:
		return fitsNone
	case *says.OneOf:
		if len(k.Subschemas) > 0 {
			return "fits several of the schema's alternatives, and one is wanted"
		}
		return fitsNone
	case *says.Not:
		return "is what the schema excludes"
	default:
		if path := k.KeywordPath(); len(path) > 0 {
			return fmt.Sprintf("does not fit the schema's %s", path[0])
		}
		return "is not taken by the schema"
	}
}

func typeWord(t string) string {
	switch t {
	case "string":
		return "a text"
	case "array":
		return "a list"
	case "integer":
		return "a whole number"
	case "object":
		return "an object"
	case "null":
		return "null"
	default:
		return "a " + t
	}
}

// values writes values of a schema as JSON.
func values(of []any) []string {
	var out []string
	for _, v := range of {
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte("?")
		}
		out = append(out, string(text))
	}
	return out
}

func decimal(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// JSONSchema is a JSON Schema: a mapping, or the name of a file.
type JSONSchema struct {
	leaf
	schema *jsonSchema
}

// schemaSource is the text of a schema and where its parts stand.
type schemaSource struct {
	file  string // which problems name
	url   string
	json  []byte
	place func(path []string) (line, column int)
}

func (s *JSONSchema) decode(d *decoder, n *node, what string) bool {
	var text *schemaSource
	if n.kind == mapping {
		text = d.inlineSchema(n, what)
	} else {
		text = d.schemaFile(n, what)
	}
	if text == nil {
		return false
	}
	s.schema = d.compileSchema(text, n)
	s.node = n
	return s.schema != nil
}

// inlineSchema is a schema that stands in the pipeline. It answers nil for one that cannot be known without the environment.
func (d *decoder) inlineSchema(n *node, what string) *schemaSource {
	j := jsonWriter{decoder: d}
	j.value(n, what)
	if j.missing {
		return nil
	}
	return &schemaSource{file: d.src.file, url: fileURL(d.src.file), json: j.out, place: func(path []string) (int, int) {
		at := n.inside(path)
		return at.line, at.column
	}}
}

// inside is the value at the end of path, or the nearest one above it.
func (n *node) inside(path []string) *node {
	for _, name := range path {
		next := n.find(name)
		if i, err := strconv.Atoi(name); err == nil && n.kind == list && i >= 0 && i < len(n.items) {
			next = n.items[i]
		}
		if next == nil {
			break
		}
		n = next
	}
	return n
}

func (d *decoder) schemaFile(n *node, what string) *schemaSource {
	if n.kind != scalar || n.tag != "" || n.style == bare && resolve(n.text) != isText {
		d.wrongType(n, what, "a JSON Schema, or the name of its file")
		return nil
	}
	var name Text
	if !name.decode(d, n, what) || name.missing {
		return nil
	}
	if filepath.Ext(name.Value) != ".json" {
		d.report(n, "field.value", fmt.Sprintf("%s is a JSON Schema or the name of a .json file, and %s is none", what, n.text), "")
		return nil
	}
	file := d.beside(name.Value)
	text, err := d.ReadFile(file)
	if err != nil {
		d.report(n, "schema.file", fmt.Sprintf("the schema %s cannot be read: %v", n.text, reason(err)), "the path is relative to the pipeline file")
		return nil
	}
	d.set.remember(file, string(text))
	if _, _, err := rawjson.Check(text, nil); err != nil {
		line, column, what := 1, 1, err.Error()
		var se *rawjson.SyntaxError
		if errors.As(err, &se) {
			line, column = lineColumn(text, se.Offset)
			what = se.What
		}
		d.problem(file, line, column, "schema.invalid", "the schema is not JSON: "+what, "")
		return nil
	}
	return &schemaSource{file: file, url: fileURL(file), json: text, place: func(path []string) (int, int) {
		return lineColumn(text, offsetOf(text, path))
	}}
}

// offsetOf is where in a JSON text the value at the end of path begins, or the nearest one above it.
func offsetOf(text []byte, path []string) int {
	at := bytes.TrimLeft(text, " \t\r\n")
	for _, name := range path {
		var next []byte
		switch rawjson.KindOf(at[0]) {
		case rawjson.Object:
			next = rawjson.Find(at, rawjson.Members(at, nil), name)
		case rawjson.Array:
			spans := rawjson.Elements(at, nil)
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(spans) {
				next = at[spans[i].Start:spans[i].End]
			}
		default:
		}
		if next == nil {
			break
		}
		at = next
	}
	return cap(text) - cap(at)
}

// lineColumn is the line and column, from 1, of the character at a byte of text.
func lineColumn(text []byte, offset int) (line, column int) {
	before := text[:min(offset, len(text))]
	return bytes.Count(before, []byte("\n")) + 1, characters(string(before[bytes.LastIndexByte(before, '\n')+1:])) + 1
}

func fileURL(file string) string {
	if full, err := filepath.Abs(file); err == nil {
		file = full
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(file)}
	return u.String()
}

// besideLoader reads the files that a schema refers to.
type besideLoader struct {
	*decoder
	from *schemaSource
}

// Load reads the file of a URL, which becomes relative to the schema's again.
func (l besideLoader) Load(address string) (any, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(l.from.url)
	if err != nil {
		return nil, err
	}
	name, err := filepath.Rel(filepath.Dir(filepath.FromSlash(base.Path)), filepath.FromSlash(u.Path))
	if err != nil {
		return nil, err
	}
	text, err := l.ReadFile(filepath.Join(filepath.Dir(l.from.file), name))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", name, reason(err))
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s is not JSON", name)
	}
	return value, nil
}

// compileSchema compiles a schema; n is where the pipeline has it. Formats are checked, other files may be referred to,
// other machines not.
func (d *decoder) compileSchema(text *schemaSource, n *node) *jsonSchema {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text.json))
	if err != nil {
		d.report(n, "schema.invalid", "the schema is not JSON", "")
		return nil
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{"file": besideLoader{d, text}})
	err = c.AddResource(text.url, value)
	var compiled *jsonschema.Schema
	if err == nil {
		compiled, err = c.Compile(text.url)
	}
	if err != nil {
		d.schemaProblem(text, value, err)
		return nil
	}
	d.keywords(text, value, nil)
	out := &jsonSchema{compiled: compiled}
	if object, ok := value.(map[string]any); ok {
		properties, _ := object["properties"].(map[string]any)
		_, out.suspended = properties["suspended"]
	}
	return out
}

// schemaProblem reports what the compiler of schemas has found.
func (d *decoder) schemaProblem(text *schemaSource, value any, err error) {
	report := func(path []string, message string) {
		line, column := text.place(path)
		d.problem(text.file, line, column, "schema.invalid", message, "")
	}
	var (
		invalid  *jsonschema.SchemaValidationError
		wrong    *jsonschema.ValidationError
		load     *jsonschema.LoadURLError
		scheme   *jsonschema.UnsupportedURLSchemeError
		draft    *jsonschema.UnsupportedDraftError
		notFound *jsonschema.JSONPointerNotFoundError
		noAnchor *jsonschema.AnchorNotFoundError
	)
	switch {
	case errors.As(err, &invalid) && errors.As(invalid.Err, &wrong):
		for _, m := range misfits(nil, wrong) {
			report(m.Path, "the schema is none: "+asSchema(m).String())
		}
	case errors.As(err, &load) && errors.As(load.Err, &scheme):
		report(text.reference(value, nil, load.URL), "the schema refers to another machine, and only files beside it are read")
	case errors.As(err, &load):
		report(text.reference(value, nil, load.URL), "the schema refers to what cannot be had: "+load.Err.Error())
	case errors.As(err, &draft):
		report(text.reference(value, nil, draft.URL), "the schema is of a draft that is not known; draft-04, draft-06, draft-07, 2019-09 and 2020-12 are")
	case errors.As(err, &notFound):
		report(text.reference(value, nil, notFound.URL), "the schema refers to a part that is not there")
	case errors.As(err, &noAnchor):
		report(text.reference(value, nil, noAnchor.Reference), "the schema refers to an anchor that is not there")
	default:
		report(nil, "the schema is none: "+strings.ReplaceAll(err.Error(), text.url, "#"))
	}
}

// asSchema says a misfit of a schema in words for one.
func asSchema(m Misfit) *Misfit {
	switch {
	case strings.HasSuffix(m.What, "the format regex"):
		m.What = "is no regular expression of RE2"
	case m.What == fitsNone && len(m.Path) > 0 && m.Path[len(m.Path)-1] == "type":
		m.What = "is none of array, boolean, integer, null, number, object and string"
	case m.What == fitsNone:
		m.What = "is nothing that JSON Schema takes there"
	}
	return &m
}

// reference is the path to what refers to the address, or nil.
func (s *schemaSource) reference(value any, path []string, address string) []string {
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			if found := s.reference(item, append(slices.Clone(path), strconv.Itoa(i)), address); found != nil {
				return found
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			here := append(slices.Clone(path), name)
			if text, ok := value[name].(string); ok && strings.HasPrefix(name, "$") && s.refersTo(text, address) {
				return here
			}
			if found := s.reference(value[name], here, address); found != nil {
				return found
			}
		}
	default:
	}
	return nil
}

func (s *schemaSource) refersTo(reference, address string) bool {
	base, err := url.Parse(s.url)
	if err != nil {
		return false
	}
	target, err := base.Parse(reference)
	if err != nil {
		return false
	}
	whole := target.String()
	target.Fragment = ""
	return whole == address || target.String() == address
}

// The keywords of JSON Schema by what their values are.
var (
	schemaKeywords = []string{"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames",
		"then", "unevaluatedItems", "unevaluatedProperties"}
	schemaListKeywords = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	schemaMapKeywords  = []string{"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
	plainKeywords      = []string{"$anchor", "$comment", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "$ref", "$schema",
		"$vocabulary", "const", "contentEncoding", "contentMediaType", "default", "dependentRequired", "deprecated", "description", "enum", "examples",
		"exclusiveMaximum", "exclusiveMinimum", "format", "id", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum", "minContains",
		"minItems", "minLength", "minProperties", "minimum", "multipleOf", "pattern", "readOnly", "required", "title", "type", "uniqueItems", "writeOnly"}
	allKeywords = slices.Concat(schemaKeywords, schemaListKeywords, schemaMapKeywords, plainKeywords)
)

// keywords warns about what is no keyword: JSON Schema passes it over, so that a misspelt one would check nothing.
func (d *decoder) keywords(text *schemaSource, value any, path []string) {
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			d.keywords(text, item, append(path, strconv.Itoa(i)))
		}
	case map[string]any:
		for name, inner := range value {
			here := append(slices.Clone(path), name)
			switch {
			case slices.Contains(schemaKeywords, name), slices.Contains(schemaListKeywords, name):
				d.keywords(text, inner, here)
			case slices.Contains(schemaMapKeywords, name):
				parts, _ := inner.(map[string]any)
				for part, inner := range parts {
					d.keywords(text, inner, append(slices.Clone(here), part))
				}
			case !slices.Contains(allKeywords, name) && !strings.HasPrefix(name, "x-"):
				line, column := text.place(here)
				hint := didYouMean(name, allKeywords)
				if hint == "" {
					hint = "members of a value are described under `properties:`"
				}
				d.problem(text.file, line, column, "schema.keyword", fmt.Sprintf("%q is no keyword of JSON Schema, so that it checks nothing", name), hint)
			}
		}
	default:
	}
}
