// Package decode makes items of bytes: each item is one JSON text, and they come one by one.
//
// A Decoder is what a Config says, checked once; it may be shared. Decoder.Open reads one body. Its Items give JSON texts
// until io.EOF, and hold no more of the body than the item under way:
//
//  1. What is held is bounded by Limits.Item, whatever the body is. Of a zip the packed body is held as well, since its
//     table of contents stands at the end.
//  2. An item is valid JSON in valid UTF-8, without white space around it, and no deeper than Limits.Depth.
//  3. An item that was given is right, whatever comes after it; what is wrong later is found when it is reached.
//  4. An error says where (member, line, row, byte) and what is expected, never what stands there. Errors of the reader below
//     pass through as they are.
package decode
