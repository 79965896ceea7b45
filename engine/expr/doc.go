// Package expr compiles and runs the one-line expressions and the templates of a pipeline.
//
// The language is expr (github.com/expr-lang/expr): its lexer, grammar and built-in functions. Its meaning over data is
// this package's own, because data must decide nothing by accident, and because a record is looked at as bytes. So expr
// parses, and the tree becomes closures over Values that are spans of the record until an operator needs them.
//
// Rules over data, each with a row in rules_test.go:
//
//  1. A missing property, an index out of range and a member of a scalar are nil. null is nil, in data and in text.
//  2. An ordering with nil, or between unlike types, is false. So are the tests on text (contains, startsWith, endsWith,
//     matches) and in, where an operand is nil or of another type.
//  3. As a condition (a filter, the operands of && || ! and ?:, a predicate) nil is false. Anything else that is no boolean
//     is an error: at compile where the types tell, else when it happens.
//  4. Arithmetic with nil is nil, and so is a function over nil; but len and count are 0, and a function that makes a list
//     makes an empty one. type(nil) is "nil". Nil elements are left out by sum, min, max, mean, median and join.
//  5. Integers are 64 bits wide and never wrap: an overflow is an error. A larger number passes through with its digits and
//     can be compared, but arithmetic on it is an error. Division makes a double.
//  6. What is passed on untouched is written byte for byte as it came. NaN and infinity are never written.
//
// Invariants of the code:
//
//  1. A compiled Expr is immutable and may be used by any number of goroutines; an Env belongs to one.
//  2. An evaluation reads the Env's fields, changes none of them, and reaches nothing else: no Go value with methods is ever
//     visible to an expression, and the same record gives the same result.
//  3. The work and the memory of one evaluation are bounded by Env.spend, whatever the data.
//  4. Errors name the expression and the place in it, never the data.
package expr
