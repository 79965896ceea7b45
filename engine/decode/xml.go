package decode

// Tree says how XML becomes JSON.
type Tree struct {
	// Lists are names of elements that are arrays also where there is only one of them.
	Lists []string
}
