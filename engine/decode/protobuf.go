package decode

import "errors"

// Schema is what a .proto file, or a descriptor set, declares.
type Schema struct{}

// ReadSchema reads a .proto file with what it imports, or a binary FileDescriptorSet, which it tells apart by the name: .proto
// is a text. read opens a file by a name beside the first one.
func ReadSchema(file string, read func(name string) ([]byte, error)) (*Schema, error) {
	return nil, errors.New("protobuf is not supported yet")
}

// Message is a message type.
type Message struct{}

// Message finds a type by its full name, such as transit_realtime.FeedMessage.
func (s *Schema) Message(name string) (*Message, error) {
	return nil, errors.New("protobuf is not supported yet")
}

// AppendJSON appends the message that wire holds as JSON.
func (m *Message) AppendJSON(dst, wire []byte) ([]byte, error) {
	return dst, errors.New("protobuf is not supported yet")
}
