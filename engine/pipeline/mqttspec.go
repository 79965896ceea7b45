package pipeline

// MQTTSpec is a session with a broker of MQTT 5. What arrives is acknowledged once Kafka has what became of it.
type MQTTSpec struct {
	// The broker: `mqtt://host:1883`, or `mqtts://host:8883` for an encrypted connection. The port may be left out.
	Broker Text `json:"broker" need:"it says where the messages come from"`
	// The topic filters to subscribe to, of which no two may overlap. Templates such as `{{ config.topic }}` may stand in
	// them: `config`, `vars` and `now` are in scope, and each config has its own.
	Topics Names `json:"topics" need:"it says which messages are wanted"`
	// The quality of service that is asked for: 0 may lose messages, 1 and 2 lose none. A message may come twice with any.
	QoS QoS `json:"qos" default:"1"`
	// Whether the instances of the stage share the messages among them. Without it every instance gets every message.
	Shared Flag `json:"shared" default:"true"`
	// What a payload is.
	Format Format `json:"format" default:"json"`
	// The name of the session at the broker, which each instance must have for itself; by default the application id, a hyphen
	// and the name of the instance.
	ClientID Text `json:"client_id"`
	// The user's name.
	User Text `json:"user"`
	// The user's password.
	Password Text `json:"password"`
	// How the connection is encrypted, and who is trusted. Only for `mqtts://`.
	TLS *TLSSpec `json:"tls"`
	// How long the connection may be silent before either side takes it for broken.
	KeepAlive Duration `json:"keep_alive" default:"30s"`
	// For how long the broker keeps the session, and what arrives for it, while the instance is away.
	SessionExpiry Duration `json:"session_expiry" default:"24h"`
	// How many messages the broker may send without an acknowledgement.
	ReceiveMaximum Count `json:"receive_maximum" default:"1000"`
	// How much may have arrived and not be acknowledged. When it is full, no more is read until Kafka has taken some.
	Inbox *InboxSpec `json:"inbox"`
	// What an instance does that ends: `stay` keeps its session, so that the broker queues for its return; `leave` ends the
	// session after what the broker still sends, for an instance that is not to return.
	OnStop Word[stop] `json:"on_stop" default:"stay"`
}

// InboxSpec is how much may wait in memory.
type InboxSpec struct {
	// How many messages.
	Messages Count `json:"messages" default:"10000"`
	// How many bytes. The broker does not send a message that is larger.
	Bytes Size `json:"bytes" default:"64MiB"`
}
