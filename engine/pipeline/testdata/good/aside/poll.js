export function* poll(config, state) {
  yield Message({ value: 1 });
  yield State({ n: 1 });
}
