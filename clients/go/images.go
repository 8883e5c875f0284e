// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"context"
	"io"
	"iter"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
	"github.com/hutch-sandbox/hutch/clients/go/internal/rules"
)

// CreateSnapshot keeps the sandbox's file system as it is now. An empty name has the daemon make one. Options:
// [WithLabels], [WithRequestID].
func (s *Sandbox) CreateSnapshot(ctx context.Context, name string, options ...CallOption) (*hutchv1.Snapshot, error) {
	request := &hutchv1.CreateSnapshotRequest{SandboxId: s.id, Name: name}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	check := checks{}
	check.id("sandbox_id", s.id)
	if name != "" {
		check.note("name", rules.CheckName(name))
	}
	check.labels("labels", request.GetLabels())
	check.requestID(request.GetRequestId())
	if err := check.result(); err != nil {
		return nil, err
	}
	response, err := s.client.sandboxes.CreateSnapshot(ctx, request)
	return response.GetSnapshot(), err
}

// Snapshots goes through the caller's snapshots, oldest first; with an id, through those of that sandbox. Options:
// [WithSelector].
func (c *Client) Snapshots(ctx context.Context, sandboxID string,
	options ...CallOption) iter.Seq2[*hutchv1.Snapshot, error] {
	request := &hutchv1.ListSnapshotsRequest{SandboxId: sandboxID}
	err := applyOptions(options, request)
	if err == nil {
		check := checks{}
		check.newID("sandbox_id", sandboxID)
		check.selector(request.GetSelector(), true)
		err = check.result()
	}
	return pages(err, func(token string) ([]*hutchv1.Snapshot, string, error) {
		request.PageToken = token
		response, err := c.sandboxes.ListSnapshots(ctx, request)
		return response.GetSnapshots(), response.GetNextPageToken(), err
	})
}

// DeleteSnapshot removes a snapshot.
func (c *Client) DeleteSnapshot(ctx context.Context, name string) error {
	check := checks{}
	if check.required("name", name) {
		check.note("name", rules.CheckName(name))
	}
	if err := check.result(); err != nil {
		return err
	}
	_, err := c.sandboxes.DeleteSnapshot(ctx, &hutchv1.DeleteSnapshotRequest{Name: name})
	return err
}

// ImportImage brings an image in from a stream of bytes. Options: [With] an ImportImageHeader, [WithSHA256],
// [WithRequestID]. It is tried again as [Files.Upload] is.
func (c *Client) ImportImage(ctx context.Context, name string, source io.Reader,
	options ...CallOption) (*hutchv1.Image, error) {
	header := &hutchv1.ImportImageHeader{Name: name}
	if err := applyOptions(options, header); err != nil {
		return nil, err
	}
	check := checks{}
	check.required("name", name)
	check.requestID(header.GetRequestId())
	if err := check.result(); err != nil {
		return nil, err
	}
	if header.GetRequestId() == "" {
		header.RequestId = newRequestID()
	}
	response, err := upload(ctx, c, source, c.images.ImportImage,
		&hutchv1.ImportImageRequest{Item: &hutchv1.ImportImageRequest_Header{Header: header}},
		func(data []byte) *hutchv1.ImportImageRequest {
			return &hutchv1.ImportImageRequest{Item: &hutchv1.ImportImageRequest_Data{Data: data}}
		})
	return response.GetImage(), err
}

// PullImage gets an image from a registry. What progress gets, if it is not nil, tells how far it has come. Options:
// [With] a PullImageRequest, [WithRequestID].
func (c *Client) PullImage(ctx context.Context, reference string, progress func(*hutchv1.PullProgress),
	options ...CallOption) (*hutchv1.Image, error) {
	request := &hutchv1.PullImageRequest{Reference: reference}
	if err := applyOptions(options, request); err != nil {
		return nil, err
	}
	check := checks{}
	check.required("reference", reference)
	check.requestID(request.GetRequestId())
	if err := check.result(); err != nil {
		return nil, err
	}
	if request.GetRequestId() == "" {
		request.RequestId = newRequestID()
	}
	stream, err := openIncoming(ctx, c, true,
		func(ctx context.Context) (receiver[hutchv1.PullImageResponse], error) {
			return c.images.PullImage(ctx, request)
		})
	if err != nil {
		return nil, err
	}
	defer stream.close()
	for {
		message, err := stream.next()
		if err != nil {
			return nil, ended(err, "the daemon did not tell about the image")
		}
		if image := message.GetImage(); image != nil {
			return image, nil
		}
		if progress != nil {
			progress(message.GetProgress())
		}
	}
}

// Images goes through the daemon's images, oldest first.
func (c *Client) Images(ctx context.Context) iter.Seq2[*hutchv1.Image, error] {
	return pages(nil, func(token string) ([]*hutchv1.Image, string, error) {
		response, err := c.images.ListImages(ctx, &hutchv1.ListImagesRequest{PageToken: token})
		return response.GetImages(), response.GetNextPageToken(), err
	})
}

// RemoveImage takes a name of an image away, and the image with its last name: then it says true.
func (c *Client) RemoveImage(ctx context.Context, reference string) (bool, error) {
	check := checks{}
	check.required("reference", reference)
	if err := check.result(); err != nil {
		return false, err
	}
	response, err := c.images.RemoveImage(ctx, &hutchv1.RemoveImageRequest{Reference: reference})
	return response.GetRemoved(), err
}
