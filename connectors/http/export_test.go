package http

// LinkOf is linkOf for the tests of the package.
var LinkOf = linkOf
