package expr

// Scope is the set of names that an expression may use.
type Scope struct {
	names []string
	vars  map[string]VarKind
}

// The scopes of a pipeline. Each may be narrowed by Scope.WithVars.
var (
	// Record is the scope of a transformer's expressions.
	Record = Scope{names: []string{"key", "value", "headers", "timestamp", "topic", "partition", "offset", "vars", "now"}}
	// Config is the scope of an extractor's expressions.
	Config = Scope{names: []string{"config", "state", "vars", "now"}}
	// Response is the scope of what is said of an answer, Item of each item of it, Page of all items of it together.
	Response = Scope{names: []string{"body", "headers", "status", "config", "state", "vars", "now"}}
	Item     = Scope{names: []string{"item", "index", "body", "headers", "status", "config", "state", "vars", "now"}}
	Page     = Scope{names: []string{"page", "body", "headers", "status", "config", "state", "vars", "now"}}
	// Delivery is the scope of what is said of a message of MQTT.
	Delivery = Scope{names: []string{"key", "value", "headers", "timestamp", "topic", "levels", "qos", "retained", "properties", "config", "vars", "now"}}
	// Forms is the scope of what a config makes of texts that stand for all of its messages.
	Forms = Scope{names: []string{"config", "vars", "now"}}
	// Choice is the scope of what chooses an extractor's configs, before they have a state: the same config is chosen
	// always or never.
	Choice = Scope{names: []string{"config", "vars"}}
)

// VarKind is what is known of a declared var.
type VarKind uint8

// The kinds of vars.
const (
	VarValue VarKind = iota // written in the file with its type
	VarText                 // a text that came from the environment without a type (`${N}` without `|number`)
)

// WithVars is the scope with the declared vars, so that a misspelt `vars.x` is an error of Compile, and so that
// Expr.TextVars can tell where a text of the environment meets an ordering or arithmetic.
func (s Scope) WithVars(vars map[string]VarKind) Scope {
	s.vars = vars
	return s
}

// Names are the names in scope.
func (s Scope) Names() []string { return s.names }
