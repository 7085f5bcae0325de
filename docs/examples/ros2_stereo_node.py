"""A ROS 2 node that does what stereo_image_proc's disparity_node does, with hybridstereo.

    ros2 run --prefix python3 docs/examples/ros2_stereo_node.py --ros-args \
        -r left/image_rect:=/stereo/left/image_rect -r right/image_rect:=/stereo/right/image_rect \
        -r right/camera_info:=/stereo/right/camera_info

It subscribes to ``left/image_rect``, ``right/image_rect`` and ``right/camera_info`` (sensor_msgs),
and publishes ``disparity`` (stereo_msgs/DisparityImage), which ``point_cloud_node`` of
stereo_image_proc takes.  Parameters: ``model``, ``disparities``, ``min_disparity``,
``iterations``, ``warm_start``.

ROS is imported by `main` alone: the functions above it convert messages without it, and are tested
without it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import hybridstereo as hs

# Encodings of sensor_msgs/Image: type, channels, and whether the colours come as BGR.
ENCODINGS = {
    "mono8": (np.uint8, 1, False),
    "mono16": (np.uint16, 1, False),
    "rgb8": (np.uint8, 3, False),
    "rgba8": (np.uint8, 4, False),
    "rgb16": (np.uint16, 3, False),
    "bgr8": (np.uint8, 3, True),
    "bgra8": (np.uint8, 4, True),
    "bgr16": (np.uint16, 3, True),
}


def image_from_message(message: Any) -> np.ndarray:
    """A sensor_msgs/Image as an array that `Stereo.match` takes, RGB or grey.

    Rows may be padded (``step``) and the bytes in either order.
    """
    if message.encoding not in ENCODINGS:
        raise hs.StereoError(
            f"Images are encoded as {message.encoding}", f"Use one of {', '.join(ENCODINGS)}"
        )
    dtype, channels, is_bgr = ENCODINGS[message.encoding]
    order = np.dtype(dtype).newbyteorder(">" if message.is_bigendian else "<")
    rows = np.frombuffer(message.data, np.uint8).reshape(message.height, message.step)
    used = message.width * channels * order.itemsize
    pixels = np.ascontiguousarray(rows[:, :used]).view(order).astype(dtype)
    pixels = pixels.reshape(message.height, message.width, channels)
    if channels == 1:
        return pixels[:, :, 0]
    if is_bgr:
        return np.ascontiguousarray(pixels[:, :, [2, 1, 0, *range(3, channels)]])
    return pixels


def geometry_of(camera_info: Any) -> tuple[float, float]:
    """Focal length in pixels and baseline in metres, from the right camera's projection matrix.

    ``P`` is row by row; of the right camera, ``P[3] = -focal * baseline``.
    """
    focal = float(camera_info.p[0])
    return focal, -float(camera_info.p[3]) / focal if focal else 0.0


def disparity_fields(
    result: hs.StereoResult, header: Any, focal: float, baseline: float
) -> SimpleNamespace:
    """The fields of a stereo_msgs/DisparityImage, by their names."""
    height, width = result.disparity.shape
    values = np.ascontiguousarray(result.disparity, "<f4")
    image = SimpleNamespace(
        header=header,
        height=height,
        width=width,
        encoding="32FC1",
        is_bigendian=0,
        step=4 * width,
        data=values.tobytes(),
    )
    labels = result.label_range
    return SimpleNamespace(
        header=header,
        image=image,
        f=focal,
        t=baseline,
        min_disparity=float(labels.minimum),
        max_disparity=float(labels.maximum),
        delta_d=float(labels.step),
    )


def fill(message: Any, fields: SimpleNamespace) -> Any:
    """Copy fields into a message, those of nested messages as well; returns the message."""
    for name, value in vars(fields).items():
        if isinstance(value, SimpleNamespace):
            fill(getattr(message, name), value)
        else:
            setattr(message, name, value)
    return message


def main() -> None:
    """Run the node until it is shut down."""
    import message_filters
    import rclpy
    from rclpy.node import Node
    from rclpy.qos import qos_profile_sensor_data
    from sensor_msgs.msg import CameraInfo, Image
    from stereo_msgs.msg import DisparityImage

    class StereoNode(Node):
        """Matches pairs of images as they come; what comes meanwhile is dropped."""

        def __init__(self) -> None:
            super().__init__("hybridstereo")
            value = {
                name: self.declare_parameter(name, default).value
                for name, default in (
                    ("model", "general-fast"),
                    ("disparities", 128),
                    ("min_disparity", 0.0),
                    ("iterations", 4),
                    ("warm_start", False),
                )
            }
            self._sequence = hs.StereoSequence(
                hs.Stereo(value["model"]),
                disparities=value["disparities"],
                min_disparity=value["min_disparity"],
                iterations=value["iterations"],
                warm_start=value["warm_start"],
            )
            self._publisher = self.create_publisher(DisparityImage, "disparity", 1)
            topics = (
                (Image, "left/image_rect"),
                (Image, "right/image_rect"),
                (CameraInfo, "right/camera_info"),
            )
            subscribers = [
                message_filters.Subscriber(self, kind, name, qos_profile=qos_profile_sensor_data)
                for kind, name in topics
            ]
            self._synchroniser = message_filters.ApproximateTimeSynchronizer(
                subscribers, queue_size=1, slop=0.02
            )
            self._synchroniser.registerCallback(self._match)

        def _match(self, left: Any, right: Any, camera_info: Any) -> None:
            try:
                result = self._sequence.match(image_from_message(left), image_from_message(right))
            except hs.StereoError as error:
                self.get_logger().error(str(error))
                return
            fields = disparity_fields(result, left.header, *geometry_of(camera_info))
            self._publisher.publish(fill(DisparityImage(), fields))

    rclpy.init()
    node = StereoNode()
    try:
        rclpy.spin(node)
    except KeyboardInterrupt:
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
