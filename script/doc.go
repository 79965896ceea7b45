// Package script runs the JavaScript bodies of a pipeline: goja lives here and nowhere else.
//
// Compile turns a body and the pipeline's functions into a Program and finds everything that can be found without
// running it. A Program makes any number of Transforms (one VM each, one goroutine) and Sources (one VM per running poll).
//
// How a body becomes a function (compile.go, rewrite.go, names.go):
//
//  1. Functions and body are joined into one source text, the body as the inside of an async generator, and parsed once.
//     Every byte of the joined text belongs to a stream.Text of the user, so that each position that goja reports, at
//     compile or at run time, is mapped to the user's own file, line and column (source.go).
//
//     Files that they import stand before them, each in a function of its own (module.go, link.go).
//
//  2. In the tree, each yield of the body itself becomes a call of a native function and the generator and async flags are
//     cleared. The user's own generators stay as they are. Generated calls name their callee with an identifier that
//     cannot be written in JavaScript, so no script can reach or shadow them.
//
//  3. Every catch clause first lets the cancel sentinel pass, so that a cancelled body runs its finally blocks and
//     nothing else.
//
//  4. Object literals that spread an object, and Message({…}) in a yield, become native calls that copy bytes instead of
//     building objects (literals.go, lazy.go).
//
//  5. A body that may wait (it, or something that it can reach, names await, async, Promise or fetch) stays an async function,
//     and an async function* that it runs with yield* becomes one. Their calls overlap in one VM (loop.go, overlap.go), and as
//     long as nobody can tell, one call runs many records (worker.go). All other bodies know nothing of this.
//
// Invariants:
//
//  1. A value is its bytes until somebody looks (lazy.go). What a script did not change leaves as the bytes that came.
//  2. Nothing that a script does in one call is visible in the next, save what it yielded. Built-ins, globals, vars and what
//     functions declare are deeply frozen (freeze.go).
//  3. What a failing record yielded is taken back before the engine is asked what to do with it.
//  4. The optimised and the plain representation of values cannot be told apart by a script. plainValues switches the
//     former off; the tests run every case over both.
//  5. A VM that was interrupted is never used again.
package script
