export async function enrich(config) {
  return { ...config, at: 1 };
}
