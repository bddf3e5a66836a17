import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.PulsarClientException;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.schema.Schema;

/**
 * Traffic of one scalable topic of Pulsar 5: a producer with many keys, a consumer that counts.
 *
 * <p>Arguments: service URL, topic, messages a second, bytes of a message. Each second it prints
 * "acknowledged received errors", and an error as a line that begins with "error". When its
 * standard input ends it stops producing, waits for what is missing, prints once more and ends.
 */
public class ScalableTraffic {
    private static final int KEYS = 256;
    private static final int DRAIN_S = 30;

    private static final Set<Long> acknowledged = ConcurrentHashMap.newKeySet();
    private static final Set<Long> received = ConcurrentHashMap.newKeySet();
    private static final AtomicLong errors = new AtomicLong();
    private static volatile boolean ended;

    public static void main(String[] words) throws Exception {
        PulsarClient client = PulsarClient.builder().serviceUrl(words[0]).build();
        QueueConsumer<byte[]> consumer = client.newQueueConsumer(Schema.bytes()).topic(words[1])
                .subscriptionName("count")
                .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                .subscribe();
        Producer<byte[]> producer = client.newProducer(Schema.bytes()).topic(words[1]).create();
        begin(() -> consume(consumer));
        begin(() -> produce(producer, Integer.parseInt(words[2]), Integer.parseInt(words[3])));
        begin(ScalableTraffic::tell);
        while (System.in.read() >= 0) {
            continue;
        }
        ended = true;
        for (int waited = 0; waited < DRAIN_S && !received.containsAll(acknowledged); waited++) {
            Thread.sleep(1_000);
        }
        print();
        System.exit(0);
    }

    private static void begin(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }

    private static void produce(Producer<byte[]> producer, int perSecond, int size) {
        for (long number = 0; !ended; number++) {
            long mine = number;
            producer.async().newMessage().key("key-" + mine % KEYS).value(new byte[size])
                    .property("number", Long.toString(mine)).send()
                    .whenComplete((id, error) -> {
                        if (error == null) {
                            acknowledged.add(mine);
                        } else {
                            failed(error);
                        }
                    });
            sleep(1_000 / perSecond);
        }
    }

    private static void consume(QueueConsumer<byte[]> consumer) {
        while (true) {
            try {
                var message = consumer.receive(Duration.ofSeconds(1));
                if (message != null) {
                    received.add(Long.parseLong(message.properties().get("number")));
                    consumer.acknowledge(message.id());
                }
            } catch (PulsarClientException error) {
                failed(error);
                sleep(1_000);
            }
        }
    }

    private static void tell() {
        while (!ended) {
            sleep(1_000);
            print();
        }
    }

    private static void failed(Throwable error) {
        errors.incrementAndGet();
        System.out.println("error " + error);
    }

    private static void print() {
        System.out.println(acknowledged.size() + " " + received.size() + " " + errors.get());
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
