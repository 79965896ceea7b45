package pipeline

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

const schemaFile = "../../schemas/pipeline.schema.json"

// schema is an object of a JSON Schema whose members keep their order.
type schema []member

type member struct {
	name  string
	value any
}

func (s schema) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, m := range s {
		if i > 0 {
			out = append(out, ',')
		}
		var value bytes.Buffer
		e := json.NewEncoder(&value)
		e.SetEscapeHTML(false)
		if err := e.Encode(m.value); err != nil {
			return nil, err
		}
		out = append(append(rawjson.AppendString(out, m.name), ':'), bytes.TrimSpace(value.Bytes())...)
	}
	return append(out, '}'), nil
}

func any1(of ...schema) schema { return schema{{"anyOf", of}} }

func object(values any) schema {
	return schema{{"type", "object"}, {"additionalProperties", values}}
}

var (
	textSchema = schema{{"type", "string"}}
	// fromEnv stands beside the type of a field that is no text: what the environment holds decides.
	fromEnv       = schema{{"type", "string"}, {"pattern", `\$\{`}}
	scalarSchema  = schema{{"type", []string{"string", "number", "boolean"}}}
	namePattern   = `^[a-zA-Z0-9._-]+$|\$\{`
	leavesPattern = any1(schema{{"type", []string{"string", "number", "boolean", "null"}}},
		schema{{"type", "array"}, {"items", ref("Leaves")}}, object(ref("Leaves")))
	scriptSchema = any1(textSchema, schema{{"type", "object"}, {"additionalProperties", false}, {"required", []string{"script"}},
		{"properties", schema{{"script", schema{{"type", "string"}, {"pattern", `\.js$|\$\{`}}}}}})
)

// retrySchema is that of the policies that may try again.
var retrySchema = any1(words("fail", "skip", "retry"), schema{{"type", "object"}, {"additionalProperties", false}, {"required", []string{"retry"}},
	{"properties", schema{{"retry", schema{{"type", "string"}, {"pattern", `^[0-9]+(ms|s|m|h|d) *\.\. *[0-9]+(ms|s|m|h|d)$|\$\{`}}}}}})

// dlqSchema is that of the policies that know dead letters.
var dlqSchema = schema{{"type", "object"}, {"additionalProperties", false}, {"required", []string{"dlq"}}, {"properties", schema{{"dlq", textSchema}}}}

func words(w ...string) schema { return any1(schema{{"enum", w}}, fromEnv) }

func ref(name string) schema { return schema{{"$ref", "#/definitions/" + name}} }

// leafSchemas are the schemas of the types that read themselves.
var leafSchemas = map[reflect.Type]schema{
	reflect.TypeFor[Text]():          textSchema,
	reflect.TypeFor[Count]():         any1(schema{{"type", "integer"}, {"minimum", 1}}, fromEnv),
	reflect.TypeFor[Duration]():      {{"type", "string"}, {"pattern", `^[0-9]+(ms|s|m|h|d)$|\$\{`}},
	reflect.TypeFor[Object]():        {{"type", "object"}},
	reflect.TypeFor[Settings]():      object(scalarSchema),
	reflect.TypeFor[Format]():        words("json", "string", "bytes"),
	reflect.TypeFor[InvalidPolicy](): any1(words("fail", "skip"), dlqSchema),
	reflect.TypeFor[RecordPolicy]():  retrySchema,
	reflect.TypeFor[PollPolicy]():    any1(retrySchema, dlqSchema),
	reflect.TypeFor[QoS]():           any1(schema{{"enum", []int{0, 1, 2}}}, fromEnv),
	reflect.TypeFor[Require](): any1(schema{{"type", "array"}, {"items", textSchema}, {"minItems", 1}},
		append(object(words("any", "string", "number", "integer", "boolean", "object", "array")), member{"minProperties", 1})),
	reflect.TypeFor[Every](): {{"type", "string"}, {"pattern", `^[0-9]+(ms|s|m|h|d)$|\$\{|` + expressionText.String()}},
	reflect.TypeFor[Cron](): any1(textSchema, schema{{"type", "object"}, {"additionalProperties", false}, {"required", []string{"at"}},
		{"properties", schema{{"at", textSchema}, {"zone", textSchema}}}}),
	reflect.TypeFor[JSONSchema](): any1(schema{{"type", "object"}}, schema{{"type", "string"}, {"pattern", `\.json$|\$\{`}}),
	reflect.TypeFor[Rate]():       {{"type", "string"}, {"pattern", `^[1-9][0-9]*/[smh]$|\$\{`}},
	reflect.TypeFor[Size]():       any1(schema{{"type", "integer"}, {"minimum", 1}}, schema{{"type", "string"}, {"pattern", `^[1-9][0-9]*([KMG]iB)?$|\$\{`}}),
	reflect.TypeFor[Limit]():      any1(schema{{"type", "integer"}, {"minimum", 0}}, fromEnv),
	reflect.TypeFor[Names]():      any1(textSchema, schema{{"type", "array"}, {"items", textSchema}, {"minItems", 1}}),
	reflect.TypeFor[Inputs](): any1(textSchema, schema{{"type", "array"}, {"items", textSchema}, {"minItems", 1}},
		append(object(textSchema), member{"minProperties", 1})),
	reflect.TypeFor[Rows]():       {{"type", "array"}, {"minItems", 1}},
	reflect.TypeFor[Script]():     scriptSchema,
	reflect.TypeFor[Functions]():  any1(textSchema, schema{{"type", "array"}, {"items", textSchema}, {"minItems", 1}}),
	reflect.TypeFor[Expression](): scalarSchema,
	reflect.TypeFor[Leaves]():     ref("Leaves"),

	reflect.TypeFor[Template]():  scalarSchema,
	reflect.TypeFor[Templates](): object(any1(scalarSchema, schema{{"type", "array"}, {"items", scalarSchema}})),
	reflect.TypeFor[BodyTree]():  {},
	reflect.TypeFor[Flag]():      any1(schema{{"type", "boolean"}}, fromEnv),
	reflect.TypeFor[Quote]():     any1(schema{{"enum", []any{false}}}, textSchema),
	reflect.TypeFor[Statuses]():  any1(statusSchema, schema{{"type", "array"}, {"items", statusSchema}, {"minItems", 1}}),
	reflect.TypeFor[RetryAfter](): any1(schema{{"enum", []any{false}}}, schema{{"type", "string"}, {"pattern", `^[0-9]+(ms|s|m|h|d)$|\$\{`}},
		schema{{"type", "object"}, {"additionalProperties", false}, {"properties", schema{
			{"max", schema{{"description", "The longest wait."}, {"type", "string"}, {"pattern", `^[0-9]+(ms|s|m|h|d)$|\$\{`}}},
			{"times", schema{{"description", "How often in a row for one request."}, {"type", "integer"}, {"minimum", 1}}}}}}),
	reflect.TypeFor[Pauses](): {{"type", "string"}, {"pattern", `^[0-9]+(ms|s|m|h|d) *\.\. *[0-9]+(ms|s|m|h|d)$|\$\{`}},
	reflect.TypeFor[PageParam](): any1(textSchema, schema{{"type", "object"}, {"additionalProperties", false}, {"minProperties", 1}, {"maxProperties", 1},
		{"properties", schema{{"query", textSchema}, {"header", textSchema}, {"body", textSchema}}}}),
}

var statusSchema = any1(schema{{"type", "integer"}, {"minimum", 100}, {"maximum", 599}},
	schema{{"type", "string"}, {"pattern", `^[1-5][0-9][0-9]( *- *[1-5][0-9][0-9])?$|\$\{`}})

// generator makes the JSON Schema of the Spec types.
type generator struct {
	comments    map[string]string // by Type and Type.Field
	definitions schema
}

func generate(t *testing.T) []byte {
	t.Helper()
	g := &generator{comments: comments(t, "spec.go", "httpspec.go", "mqttspec.go"), definitions: schema{{"Leaves", leavesPattern}}}
	root := schema{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "Flechtwerk pipeline"}}
	root = append(root, g.structure(reflect.TypeFor[Spec]())...)
	root = append(root, member{"definitions", g.definitions})
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (g *generator) structure(t reflect.Type) schema {
	out := schema{{"description", g.comments[t.Name()]}, {"type", "object"}, {"additionalProperties", false}}
	var required []string
	properties := schema{}
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("json")
		if _, later := f.Tag.Lookup("later"); key == "" || later {
			continue
		}
		if f.Tag.Get("need") != "" && f.Tag.Get("instead") == "" || f.Tag.Get("schema") == "required" {
			required = append(required, key)
		}
		property := schema{{"description", g.comments[t.Name()+"."+f.Name]}}
		property = append(property, g.value(f.Type)...)
		if f.Tag.Get("pattern") == "name" {
			property = append(property, member{"pattern", namePattern})
		}
		if d := f.Tag.Get("default"); d != "" {
			var value any = d
			if _, err := strconv.Atoi(d); err == nil {
				value = json.Number(d)
			}
			property = append(property, member{"default", value})
		}
		properties = append(properties, member{key, property})
	}
	if len(required) > 0 {
		out = append(out, member{"required", required})
	}
	switch t {
	case reflect.TypeFor[TransformerSpec]():
		out = append(out, member{"oneOf", []schema{{{"required", []string{"transform"}}}, {{"required", []string{"message"}}}}})
	case reflect.TypeFor[ExtractorSpec]():
		out = append(out, member{"allOf", []schema{
			{{"oneOf", []schema{{{"required", []string{"every"}}}, {{"required", []string{"cron"}}}, {{"required", []string{"mqtt"}}}}}},
			{{"oneOf", []schema{{{"required", []string{"poll"}}}, {{"required", []string{"http"}}}, {{"required", []string{"mqtt"}}}}}}}})
	case reflect.TypeFor[BodySpec]():
		out = append(out, oneOf("json", "form", "text"))
	case reflect.TypeFor[AuthSpec]():
		out = append(out, oneOf("basic", "bearer", "api_key", "oauth2"))
	case reflect.TypeFor[APIKeySpec]():
		out = append(out, oneOf("header", "query"))
	case reflect.TypeFor[SeedSpec]():
		out = append(out, member{"oneOf", []schema{{{"required", []string{"file"}}}, {{"required", []string{"records"}}}}})
	}
	return append(out, member{"properties", properties})
}

// oneOf demands exactly one of some keys.
func oneOf(keys ...string) member {
	var each []schema
	for _, key := range keys {
		each = append(each, schema{{"required", []string{key}}})
	}
	return member{"oneOf", each}
}

// value is the schema of a field's type.
func (g *generator) value(t reflect.Type) schema {
	if s, ok := leafSchemas[t]; ok {
		return s
	}
	if w, ok := reflect.New(t).Interface().(interface{ known() []string }); ok {
		s := words(w.known()...)
		if slices.Contains(w.known(), "null") {
			s = any1(schema{{"type", "null"}}, s)
		}
		return s
	}
	if t.Kind() == reflect.Pointer {
		s := schema{{"allOf", []schema{g.define(t.Elem())}}}
		if t.Elem() == reflect.TypeFor[DecodeSpec]() {
			s = any1(words((&Word[decode.Format]{}).known()...), s)
		}
		return s
	}
	if items, ok := t.FieldByName("Items"); ok { // Named
		inner := items.Type.Elem().Field(1).Type
		s, isLeaf := leafSchemas[inner]
		if !isLeaf {
			s = g.define(inner)
		}
		if inner == reflect.TypeFor[TopicSpec]() {
			s = any1(s, schema{{"type", "null"}})
		}
		out := object(s)
		if !isLeaf {
			out = append(out, member{"propertyNames", schema{{"pattern", namePattern}}})
		}
		return out
	}
	return g.define(t)
}

func (g *generator) define(t reflect.Type) schema {
	name := strings.TrimSuffix(t.Name(), "Spec")
	if !slices.ContainsFunc(g.definitions, func(m member) bool { return m.name == name }) {
		g.definitions = append(g.definitions, member{name, nil})
		at := len(g.definitions) - 1
		g.definitions[at].value = g.structure(t)
	}
	return ref(name)
}

// comments reads the comments of the types and fields of files.
func comments(t *testing.T, files ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	line := func(g *ast.CommentGroup) string { return strings.Join(strings.Fields(g.Text()), " ") }
	var decls []ast.Decl
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		decls = append(decls, tree.Decls...)
	}
	for _, decl := range decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			typ, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			// What a comment says after its first words is for people who read the code.
			_, about, _ := strings.Cut(line(general.Doc), " is ")
			about, _, _ = strings.Cut(about, ". Its fields")
			out[typ.Name.Name] = strings.ToUpper(about[:1]) + about[1:]
			for _, f := range typ.Type.(*ast.StructType).Fields.List {
				out[typ.Name.Name+"."+f.Names[0].Name] = line(f.Doc)
			}
		}
	}
	return out
}

func schemaText(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestSchemaIsOfTheTypes keeps the JSON Schema equal to the Spec types.
func TestSchemaIsOfTheTypes(t *testing.T) {
	text := generate(t)
	if *update {
		if err := os.WriteFile(schemaFile, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(schemaText(t)), string(text)); diff != "" {
		t.Errorf("the schema is not that of the types (-file +types; go generate writes it):\n%s", diff)
	}
}

// TestEveryKeyIsDescribed demands words for every key, because an editor shows them.
func TestEveryKeyIsDescribed(t *testing.T) {
	walk := func(path string, s map[string]any) {
		properties, _ := s["properties"].(map[string]any)
		for name, p := range properties {
			p := p.(map[string]any)
			if text, _ := p["description"].(string); len(text) < 10 && name != "script" {
				t.Errorf("%s.%s has no description", path, name)
			}
		}
	}
	var root map[string]any
	if err := json.Unmarshal(schemaText(t), &root); err != nil {
		t.Fatal(err)
	}
	walk("", root)
	for name, d := range root["definitions"].(map[string]any) {
		walk(name, d.(map[string]any))
	}
}

// asJSON is a file as the schema sees it: `${…}` stands as it is.
func asJSON(t *testing.T, file string) (any, bool) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := corpusOptions()
	o.ReadFile = os.ReadFile
	l := &loader{Options: o, set: &Set{lines: map[string][]string{}}}
	_, root := l.parse(file, text)
	if root == nil || l.problems.Failed() {
		return nil, false
	}
	return plainValue(root), true
}

func plainValue(n *node) any {
	switch n.kind {
	case mapping:
		out := map[string]any{}
		for _, e := range n.entries {
			out[e.key.text] = plainValue(e.value)
		}
		return out
	case list:
		out := []any{}
		for _, item := range n.items {
			out = append(out, plainValue(item))
		}
		return out
	case scalar:
		if n.style == bare {
			switch resolve(n.text) {
			case isBool:
				return strings.ToLower(n.text) == "true"
			case isInteger, isFloat:
				return json.Number(number(n.text))
			default:
			}
		}
		return n.text
	default:
		return nil
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaText(t)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("pipeline.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("pipeline.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSchemaTakesGoodFiles(t *testing.T) {
	s := compileSchema(t)
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		value, ok := asJSON(t, file)
		if !ok {
			t.Errorf("%s does not parse", file)
			continue
		}
		if err := s.Validate(value); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestSchemaCatches demands of the schema what an editor can know: keys, types, words and shapes.
func TestSchemaCatches(t *testing.T) {
	s := compileSchema(t)
	for _, name := range []string{
		"unknown-field", "unknown-top", "misplaced-field", "wrong-types", "missing-required", "both-bodies", "durations", "bad-words", "bad-names",
		"later-extractor", "later-transformer", "later-topics", "script-files", "retries", "crons", "workers", "empty-values", "seed-errors", "yaml-list", "yaml-scalar",
		"trap-null", "trap-list", "bom", "crlf",
	} {
		value, ok := asJSON(t, "testdata/bad/"+name+".yaml")
		if !ok {
			t.Errorf("%s does not parse", name)
			continue
		}
		if s.Validate(value) == nil {
			t.Errorf("the schema takes %s", name)
		}
	}
}
