export function* transform() {}
