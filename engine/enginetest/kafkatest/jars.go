package kafkatest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

//go:embed pom.xml
var pom []byte

// ErrNoJava says that this machine cannot run Apache Kafka: java or mvn is not on the PATH.
var ErrNoJava = errors.New("java (17 or later) and mvn must be on the PATH to start Apache Kafka")

// jars returns the class path of the broker. The jars are fetched once per user and release, into the user's cache folder;
// a file lock lets only one process fetch them, and the folder appears under its final name only when it is complete.
func jars(ctx context.Context) (string, error) {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%w: %s is missing", ErrNoJava, tool)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	home := filepath.Join(cache, "flechtwerk")
	libs := filepath.Join(home, "kafka-"+Version)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", fmt.Errorf("make the jar cache: %w", err)
	}
	unlock, err := lock(libs + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(libs); err != nil {
		if err := fetch(ctx, home, libs); err != nil {
			return "", err
		}
	}
	all, err := filepath.Glob(filepath.Join(libs, "*.jar"))
	if err != nil || len(all) == 0 {
		return "", fmt.Errorf("no jars in %s: delete the folder to fetch them again", libs)
	}
	return strings.Join(all, string(os.PathListSeparator)), nil
}

func fetch(ctx context.Context, home, libs string) error {
	work, err := os.MkdirTemp(home, "fetch-")
	if err != nil {
		return fmt.Errorf("make a folder for the jars: %w", err)
	}
	defer os.RemoveAll(work)
	file := filepath.Join(work, "pom.xml")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return fmt.Errorf("write the list of jars: %w", err)
	}
	fetched := filepath.Join(work, "jars")
	maven := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", file, "-Dkafka.version="+Version,
		"dependency:copy-dependencies", "-DoutputDirectory="+fetched)
	if out, err := maven.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch Apache Kafka %s with Maven: %w\n%s", Version, err, out)
	}
	if err := os.Rename(fetched, libs); err != nil {
		return fmt.Errorf("keep the jars: %w", err)
	}
	return nil
}

// lock takes an exclusive lock between processes; it is freed by the returned function or by the end of the process.
func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
