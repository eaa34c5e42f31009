// A backup of a block device into a file, by the iterator of external-snapshot-metadata: a full one, or, with -previous, an
// incremental one over the file that is there. It reads only what is listed. Prints a JSON object about it.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/kubernetes-csi/external-snapshot-metadata/pkg/iterator"
	"k8s.io/client-go/tools/clientcmd"
)

// The largest part that is read at once, in bytes.
const maxPart = 1 << 20

// What was backed up.
type result struct {
	Records  int     `json:"records"`
	Ranges   int     `json:"ranges"`
	Bytes    int64   `json:"bytes"`
	Capacity int64   `json:"capacity"`
	Seconds  float64 `json:"seconds"`
	Device   string  `json:"device"`
	File     string  `json:"file"`
	Restored string  `json:"restored,omitempty"`
}

// Copies each range that is listed from the device to the file.
type copier struct {
	device, file *os.File
	stopAfter    int
	result       result
}

func (c *copier) SnapshotMetadataIteratorRecord(_ int, record iterator.IteratorMetadata) error {
	c.result.Records++
	c.result.Capacity = record.VolumeCapacityBytes
	for _, block := range record.BlockMetadata {
		if c.stopAfter > 0 && c.result.Ranges == c.stopAfter {
			return iterator.ErrCancelled
		}
		c.result.Ranges++
		c.result.Bytes += block.SizeBytes
		for done := int64(0); done < block.SizeBytes; done += maxPart {
			part := make([]byte, min(maxPart, block.SizeBytes-done))
			if _, err := c.device.ReadAt(part, block.ByteOffset+done); err != nil {
				return fmt.Errorf("reading the device at %d: %w", block.ByteOffset+done, err)
			}
			if _, err := c.file.WriteAt(part, block.ByteOffset+done); err != nil {
				return fmt.Errorf("writing the file at %d: %w", block.ByteOffset+done, err)
			}
		}
	}
	return nil
}

func (c *copier) SnapshotMetadataIteratorDone(int) error {
	return c.file.Truncate(c.result.Capacity)
}

// Returns the SHA-256 of the first bytes of a file.
func digest(file io.ReaderAt, size int64) (string, error) {
	hash := sha256.New()
	if _, err := io.Copy(hash, io.NewSectionReader(file, 0, size)); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func run() (*result, error) {
	namespace := flag.String("namespace", "", "namespace of the VolumeSnapshots")
	snapshot := flag.String("snapshot", "", "VolumeSnapshot that is backed up")
	previous := flag.String("previous", "", "VolumeSnapshot of the last backup")
	device := flag.String("device", "", "device with the content of the snapshot")
	path := flag.String("file", "", "file of the backup")
	restored := flag.String("restore", "", "device to which the backup is written at the end")
	maxResults := flag.Int("max-results", 0, "most ranges in a record")
	account := flag.String("service-account", "", "ServiceAccount in the namespace, if this is no pod of it")
	stopAfter := flag.Int("stop-after", 0, "ranges after which the backup is given up")
	flag.Parse()

	// without KUBECONFIG, that of the pod
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	clients, err := iterator.BuildClients(config)
	if err != nil {
		return nil, err
	}
	source, err := os.Open(*device)
	if err != nil {
		return nil, err
	}
	mode := os.O_RDWR | os.O_CREATE
	if *previous == "" {
		mode |= os.O_TRUNC // what is not listed is zeros
	}
	file, err := os.OpenFile(*path, mode, 0o600)
	if err != nil {
		return nil, err
	}
	copier := &copier{device: source, file: file, stopAfter: *stopAfter}
	accountNamespace := ""
	if *account != "" {
		accountNamespace = *namespace
	}
	start := time.Now()
	err = iterator.GetSnapshotMetadata(context.Background(), iterator.Args{
		Clients:          clients,
		Emitter:          copier,
		Namespace:        *namespace,
		SnapshotName:     *snapshot,
		PrevSnapshotName: *previous,
		MaxResults:       int32(*maxResults),
		SANamespace:      accountNamespace,
		SAName:           *account,
	})
	result := &copier.result
	result.Seconds = time.Since(start).Seconds()
	if err != nil {
		return result, err
	}
	if result.Device, err = digest(source, result.Capacity); err != nil {
		return result, err
	}
	if result.File, err = digest(file, result.Capacity); err != nil {
		return result, err
	}
	if *restored == "" {
		return result, nil
	}
	target, err := os.OpenFile(*restored, os.O_RDWR|os.O_SYNC, 0)
	if err != nil {
		return result, err
	}
	if _, err = io.Copy(io.NewOffsetWriter(target, 0), io.NewSectionReader(file, 0, result.Capacity)); err != nil {
		return result, err
	}
	result.Restored, err = digest(target, result.Capacity)
	return result, err
}

func main() {
	result, err := run()
	if result != nil {
		text, _ := json.Marshal(result)
		fmt.Println(string(text))
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}
