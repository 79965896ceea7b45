const half = (x) => x / 2;
