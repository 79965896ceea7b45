export function* transform(msg, state) {
  yield Message({ value: msg.value });
}
