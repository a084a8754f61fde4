"""A socket and a poller that do what a test says."""


class ScriptedTransport:
    """Hands out the given pieces one receive at a time, and takes as many bytes as it is told to."""

    def __init__(self):
        self.pieces = []
        self.sent = bytearray()
        self.room = 1 << 60
        self.is_closed = False

    def receive_into(self, buffer):
        if not self.pieces:
            raise BlockingIOError
        piece = self.pieces.pop(0)
        if isinstance(piece, OSError):
            raise piece
        taken = piece[: len(buffer)]
        buffer[: len(taken)] = taken
        if len(piece) > len(taken):
            self.pieces.insert(0, piece[len(taken) :])
        return len(taken)

    def send(self, data, more_follows):
        if self.room == 0:
            raise BlockingIOError
        taken = bytes(data[: self.room])
        self.sent += taken
        self.room -= len(taken)
        return len(taken)

    def send_file(self, file_range, bytes_max):
        if self.room == 0:
            raise BlockingIOError
        count = min(file_range.length, bytes_max, self.room)
        self.sent += b"F" * count
        self.room -= count
        return count

    def close(self):
        self.is_closed = True


class NotingPoller:
    def __init__(self):
        self.readable, self.writable, self.is_watched = True, False, True
        self.to_flush = []

    def flush_later(self, connection):
        self.to_flush.append(connection)

    def end_round(self):
        while self.to_flush:
            self.to_flush.pop().flush()

    def interest(self, descriptor, readable, writable):
        self.readable, self.writable = readable, writable

    def unwatch(self, descriptor):
        self.is_watched = False
