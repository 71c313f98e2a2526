import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;

/**
 * Writes 100 bytes without pause with ZooKeeper's own client: each worker sends its next write when
 * the one before is answered, by callbacks. Prints, as JSON, what was acknowledged within the seconds.
 *
 * <p>Load HOST:PORT CONNECTIONS WORKERS SECONDS
 */
public final class Load {
  private static final double WARM_S = 2.0;
  private static final byte[] VALUE = new byte[100];
  private static final List<Double> TOOK_MS = Collections.synchronizedList(new ArrayList<>());
  private static long began;
  private static long end;

  public static void main(String[] args) throws Exception {
    int connections = Integer.parseInt(args[1]);
    int workers = Integer.parseInt(args[2]);
    double seconds = Double.parseDouble(args[3]);
    ZooKeeper[] clients = new ZooKeeper[connections];
    for (int at = 0; at < connections; at++) {
      CountDownLatch connected = new CountDownLatch(1);
      clients[at] =
          new ZooKeeper(
              args[0],
              30_000,
              event -> {
                if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                  connected.countDown();
                }
              });
      if (!connected.await(20, TimeUnit.SECONDS)) {
        throw new IllegalStateException("not connected to " + args[0]);
      }
    }
    for (int worker = 0; worker < workers; worker++) {
      try {
        clients[0].create("/load-" + worker, VALUE, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
      } catch (KeeperException.NodeExistsException known) {
        // of a round before
      }
    }
    began = System.nanoTime() + (long) (WARM_S * 1e9);
    end = began + (long) (seconds * 1e9);
    CountDownLatch left = new CountDownLatch(workers);
    for (int worker = 0; worker < workers; worker++) {
      write(clients[worker % connections], "/load-" + worker, left);
    }
    left.await();
    Collections.sort(TOOK_MS);
    int count = TOOK_MS.size();
    System.out.printf(
        "{\"operations\": %d, \"per_second\": %f, \"p50_ms\": %f, \"p99_ms\": %f}%n",
        count, count / seconds, TOOK_MS.get((count - 1) / 2), TOOK_MS.get((count - 1) * 99 / 100));
    System.exit(0);
  }

  private static void write(ZooKeeper client, String path, CountDownLatch left) {
    long at = System.nanoTime();
    if (at > end) {
      left.countDown();
      return;
    }
    client.setData(
        path,
        VALUE,
        -1,
        (code, where, context, stat) -> {
          if (code != 0) {
            System.err.println("setData came to " + code);
            System.exit(1);
          }
          long now = System.nanoTime();
          if (at > began && now < end) {
            TOOK_MS.add((now - at) / 1e6);
          }
          write(client, path, left);
        },
        null);
  }
}
