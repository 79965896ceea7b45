import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Makes a topic, writes to it in transactions, and reads it in a group of either protocol: what Kafka's own clients do. */
public class Join {
  public static void main(String[] args) throws Exception {
    Properties at = new Properties();
    at.put("bootstrap.servers", args[0]);
    try (Admin admin = Admin.create(at)) {
      admin.createTopics(List.of(new NewTopic("joined", 2, (short) 1))).all().get();
      System.out.println("topics " + admin.listTopics().names().get());
    }
    Properties out = new Properties();
    out.putAll(at);
    out.put("transactional.id", "join");
    try (var producer = new KafkaProducer<>(out, new StringSerializer(), new StringSerializer())) {
      producer.initTransactions();
      for (int i = 0; i < 3; i++) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("joined", "key", "value " + i));
        if (i == 1) producer.abortTransaction(); else producer.commitTransaction();
      }
    }
    for (String protocol : List.of("classic", "consumer")) {
      Properties in = new Properties();
      in.putAll(at);
      in.put("group.id", "join-" + protocol);
      in.put("group.protocol", protocol);
      in.put("isolation.level", "read_committed");
      in.put("auto.offset.reset", "earliest");
      try (var consumer = new KafkaConsumer<>(in, new StringDeserializer(), new StringDeserializer())) {
        consumer.subscribe(List.of("joined"));
        for (int n = 0, polls = 0; n < 2 && polls < 100; polls++)
          for (var record : consumer.poll(Duration.ofMillis(200))) {
            System.out.println(protocol + " " + record.value());
            n++;
          }
        consumer.commitSync();
      }
    }
  }
}
